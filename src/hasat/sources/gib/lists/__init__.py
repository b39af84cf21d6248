"""Reading of the taxpayer lists: files, XML, records and their published form."""
