namespace jaxrec {}
