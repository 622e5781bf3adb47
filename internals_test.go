package j17_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"j17/docs"
)

// TestInternals checks that what the pages of docs/internals name in backquotes is there: files, tests, and "a.B" where
// a is a package or a type of the program. Each page of a floor is named in a comment of the code, and no comment names
// a page that is not there.
func TestInternals(t *testing.T) {
	pages, err := filepath.Glob("docs/internals/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	there, tests := declared(t), testNames(t)
	ours := map[string]bool{}
	for name := range there {
		if of, _, ok := strings.Cut(name, "."); ok {
			ours[of] = true
		}
	}

	file, test := regexp.MustCompile(`^[a-z0-9_/]+\.go$`), regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]\w*$`)
	qualified := regexp.MustCompile(`(\w+)\.([A-Z]\w+)$`)
	checked := 0
	for _, name := range pages {
		for _, quote := range quoted(page(t, name)) {
			m := qualified.FindStringSubmatch(quote)
			switch {
			case file.MatchString(quote) && !strings.HasPrefix(quote, "_"):
				if base := path.Base(quote); !there[base] {
					t.Errorf("%s names the file %s, which is not there", name, quote)
				}
			case test.MatchString(quote):
				if !tests[quote] {
					t.Errorf("%s names %s, and there is no such test", name, quote)
				}
			case m != nil && ours[m[1]]:
				if !there[m[1]+"."+m[2]] {
					t.Errorf("%s names %s, and there is no such thing", name, quote)
				}
			default:
				continue
			}
			checked++
		}
	}
	if checked < 40 {
		t.Errorf("%d names were found: this test looks in the wrong place", checked)
	}

	named := map[string]bool{}
	comment := regexp.MustCompile(`(?m)^// .*(docs/internals/\w+\.md)`)
	walk(t, ".go", func(name, text string) {
		for _, link := range comment.FindAllStringSubmatch(text, -1) {
			named[link[1]] = true
			if _, err := os.Stat(link[1]); err != nil {
				t.Errorf("a comment of %s: %v", name, err)
			}
		}
	})
	for _, file := range pages {
		if base := path.Base(file); base != "README.md" && base != "testing.md" && !named[filepath.ToSlash(file)] {
			t.Errorf("no comment names %s", file)
		}
	}
}

// testNames returns the names of the tests, fuzz targets and benchmarks of the repository.
func testNames(tb testing.TB) map[string]bool {
	tb.Helper()
	names := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	walk(tb, "_test.go", func(_, text string) {
		for _, m := range declaration.FindAllStringSubmatch(text, -1) {
			names[m[1]] = true
		}
	})
	return names
}

// walk calls a function with each file of the repository whose name ends in a suffix, and its text.
func walk(tb testing.TB, suffix string, each func(name, text string)) {
	tb.Helper()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() &&
			(d.Name() == "testdata" || d.Name() == "node_modules" || name != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(name, suffix):
			each(name, page(tb, name))
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// TestLinks checks that the links between pages of the repository lead to a file or a folder, and there to a heading.
func TestLinks(t *testing.T) {
	fenced := regexp.MustCompile("(?s)```.*?```")
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	anchors := func(text string) map[string]bool {
		all := map[string]bool{}
		for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			all[docs.Anchor(m[1])] = true
		}
		return all
	}
	links := 0
	walk(t, ".md", func(name, text string) {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], ":") {
				continue
			}
			links++
			to, anchor, _ := strings.Cut(m[1], "#")
			target := name
			if to != "" {
				target = filepath.Join(filepath.Dir(name), filepath.FromSlash(to))
			}
			info, err := os.Stat(target)
			if err != nil {
				t.Errorf("%s: the link %s leads nowhere", name, m[1])
				continue
			}
			if anchor != "" && (info.IsDir() || !anchors(page(t, target))[anchor]) {
				t.Errorf("%s: the link %s leads to no heading", name, m[1])
			}
		}
	})
	if links < 200 {
		t.Errorf("%d links were found: this test looks in the wrong place", links)
	}
}
