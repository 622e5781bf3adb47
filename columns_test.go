package j17_test

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	// lastColumn is where lines of code and comments end, with four columns a tab.
	lastColumn = 120
	// longString is from how many bytes on a string literal may reach behind lastColumn.
	longString = 40
)

// TestColumns checks that lines end at column 120, except where a long string stands in them.
func TestColumns(t *testing.T) {
	files := 0
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || name != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		files++
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		long := longStrings(src)
		for i, line := range strings.Split(string(src), "\n") {
			line = strings.ReplaceAll(line, "\t", "    ")
			if n := utf8.RuneCountInString(line); n > lastColumn && !long[i+1] && !strings.Contains(line, "//go:") {
				t.Errorf("%s:%d ends at column %d: break it before %d", name, i+1, n, lastColumn)
			}
		}
		return nil
	})
	if err != nil || files == 0 {
		t.Fatal("the sources were not read:", err)
	}
}

// longStrings returns the lines that a long string literal is on.
func longStrings(src []byte) map[int]bool {
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	lines := map[int]bool{}
	for {
		at, kind, text := s.Scan()
		if kind == token.EOF {
			return lines
		}
		if kind != token.STRING || len(text) < longString {
			continue
		}
		first := file.Line(at)
		for n := range strings.Count(text, "\n") + 1 {
			lines[first+n] = true
		}
	}
}
