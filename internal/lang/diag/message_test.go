//go:build !race

package diag_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"j17/internal/lang/diag"
)

func TestReport(t *testing.T) {
	const both diag.Message = "error at key: %q and %d\nwrite %+[1]q"
	const stored diag.Message = "error unless stored: all of it"
	long := strings.Repeat("a", 100)
	var l diag.List
	l.Report("/a", both, long, 2)
	l.Report("/b", stored)
	l.Stored = true
	l.Report("/b", stored, "needless")
	var got []string
	for _, d := range l.All() {
		got = append(got, fmt.Sprintf("%s %t %s", d.Pointer, d.OnKey, d))
	}
	want := []string{
		"/a true 0:0 error: " + diag.Quote(long) + " and 2 (write " + strconv.Quote(long) + ")",
		"/b false 0:0 error: all of it", "/b false 0:0 warning: all of it",
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("finding %d is\n%s\nwant\n%s", i, got[i], want[i])
		}
	}
}

// TestReportsFillTheirMessages holds the tables of messages: each has a severity, and each report gives as many
// arguments as its message has places.
func TestReportsFillTheirMessages(t *testing.T) {
	places := map[string]int{} // by the package's folder and the name
	calls := 0
	check := func(f func(dir string, n ast.Node)) {
		err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool { f(filepath.Dir(path), n); return true })
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	check(func(dir string, n ast.Node) {
		v, ok := n.(*ast.ValueSpec)
		if ok && v.Type != nil && isMessage(v.Type) {
			text := constant(t, v.Values[0])
			if !regexp.MustCompile(`^(error|warning|error unless stored)( at key)?: `).MatchString(text) {
				t.Errorf("%s/%s has no severity: %s", dir, v.Names[0].Name, text)
			}
			first, hint, _ := strings.Cut(text, "\n")
			places[dir+"/"+v.Names[0].Name] = max(verbs(t, first), verbs(t, hint))
		}
	})
	check(func(dir string, n ast.Node) {
		c, ok := n.(*ast.CallExpr)
		if !ok || len(c.Args) < 2 {
			return
		}
		s, ok := c.Fun.(*ast.SelectorExpr)
		name, named := c.Args[1].(*ast.Ident)
		if !ok || s.Sel.Name != "Report" || !named {
			return
		}
		if want, known := places[dir+"/"+name.Name]; known {
			calls++
			if got := len(c.Args) - 2; got != want {
				t.Errorf("%s reports %s with %d arguments, which has %d places", dir, name.Name, got, want)
			}
		}
	})
	if len(places) < 100 || calls < len(places) {
		t.Errorf("%d messages, %d reports", len(places), calls)
	}
}

func isMessage(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "Message"
}

// constant returns the text of a constant expression of texts.
func constant(t *testing.T, e ast.Expr) string {
	t.Helper()
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		if err != nil {
			t.Fatal(err)
		}
		return s
	case *ast.BinaryExpr:
		return constant(t, e.X) + constant(t, e.Y)
	default:
		t.Fatalf("%T is no text", e)
		return ""
	}
}

// verbs returns how many arguments a format takes, and checks that it is told so: either all in their order, or by
// their numbers.
func verbs(t *testing.T, format string) (n int) {
	t.Helper()
	next := 0
	for _, m := range regexp.MustCompile(`%\+?(?:\[(\d)\])?[a-z]`).FindAllStringSubmatch(format, -1) {
		next++
		if m[1] != "" {
			next, _ = strconv.Atoi(m[1])
		}
		n = max(n, next)
	}
	return n
}
