"""A topic's log: raw ledgers that are read and appended to, the view, the record that names them."""
