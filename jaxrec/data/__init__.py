"""Trees as data: reading, generating, and packing them into arrays of indices.

Everything here is NumPy; the arrays become JAX arrays when a JAX function uses them.
"""

from jaxrec.data._batches import Batch as Batch
from jaxrec.data._batches import batches as batches
from jaxrec.data._batches import bucket as bucket
from jaxrec.data._dependency import DependencyForest as DependencyForest
from jaxrec.data._dependency import dependency_forest as dependency_forest
from jaxrec.data._dependency import dependency_lists as dependency_lists
from jaxrec.data._forest import Forest as Forest
from jaxrec.data._forest import pack as pack
from jaxrec.data._forest import unpack as unpack
from jaxrec.data._glove import Embeddings as Embeddings
from jaxrec.data._glove import glove as glove
from jaxrec.data._listops import listops as listops
from jaxrec.data._ordered import OrderedForest as OrderedForest
from jaxrec.data._ordered import ordered_forest as ordered_forest
from jaxrec.data._ordered import pack_ordered as pack_ordered
from jaxrec.data._tree import NO_LABEL as NO_LABEL
from jaxrec.data._tree import Tree as Tree
from jaxrec.data._treebank import Treebank as Treebank
from jaxrec.data._treebank import TreebankError as TreebankError
from jaxrec.data._treebank import read_treebank as read_treebank
from jaxrec.data._treebank import write_treebank as write_treebank
from jaxrec.data._vocabulary import UNKNOWN as UNKNOWN
from jaxrec.data._vocabulary import Vocabulary as Vocabulary
