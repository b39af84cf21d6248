"""Reading of the taxpayer lists: the XML, its records and what is published of them."""
