package j17_test

import (
	"go/ast"
	"testing"
)

// mostMethods is how many methods a type of the program may have.
const mostMethods = 60

// TestMethods checks that no type of the program has more methods than a reader can survey.
func TestMethods(t *testing.T) {
	methods := map[string]int{}
	for name, files := range sources(t) {
		for _, file := range files {
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
					methods[name+"."+receiver(f)]++
				}
			}
		}
	}
	for typ, n := range methods {
		if n > mostMethods {
			t.Errorf("%s has %d methods, and %d are allowed: move those of one responsibility to a type of their own", typ, n, mostMethods)
		}
	}
}
