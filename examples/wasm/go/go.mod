module orderlines

go 1.26
