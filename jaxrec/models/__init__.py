"""Recursive models over trees: flax.nnx modules written with the public API alone."""

from jaxrec.models._classifier import NodeStates as NodeStates
from jaxrec.models._classifier import TreeClassifier as TreeClassifier
from jaxrec.models._loss import label_loss as label_loss
from jaxrec.models._rntn import RNTN as RNTN
from jaxrec.models._rntn import RNTNWeights as RNTNWeights
from jaxrec.models._rntn import rntn as rntn
from jaxrec.models._tree_lstm import TreeLSTM as TreeLSTM
from jaxrec.models._tree_lstm import TreeLSTMWeights as TreeLSTMWeights
from jaxrec.models._tree_lstm import tree_lstm as tree_lstm
from jaxrec.models._tree_rnn import TreeRNN as TreeRNN
from jaxrec.models._tree_rnn import TreeRNNWeights as TreeRNNWeights
from jaxrec.models._tree_rnn import tree_rnn as tree_rnn
