package j17_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

// goroutinesOf returns the bodies of the goroutines that a function begins, nil for one whose body stands elsewhere: by
// go, and by Go of whatever waits for them, but for panics.Parts.
func goroutinesOf(f *ast.FuncDecl) (bodies []*ast.BlockStmt) {
	parts := map[string]bool{}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && isSelector(v.Type, "panics", "Parts") {
			for _, name := range v.Names {
				parts[name.Name] = true
			}
		}
		return true
	})
	body := func(e ast.Expr) *ast.BlockStmt {
		if f, ok := e.(*ast.FuncLit); ok {
			return f.Body
		}
		return nil
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			bodies = append(bodies, body(n.Call.Fun))
		case *ast.CallExpr:
			of, ok := n.Fun.(*ast.SelectorExpr)
			if !ok || of.Sel.Name != "Go" || len(n.Args) != 1 {
				break
			}
			if name, ok := of.X.(*ast.Ident); !ok || !parts[name.Name] {
				bodies = append(bodies, body(n.Args[0]))
			}
		}
		return true
	})
	return bodies
}

func isSelector(e ast.Expr, of, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == of
}

// recovers reports whether a goroutine takes panics down itself: it calls panics.Caught or panics.Logged, or defers a
// function that calls recover. What functions do that stand in it counts for them alone: others may run them, or
// goroutines that it begins.
func recovers(body *ast.BlockStmt) (does bool) {
	if body == nil {
		return false
	}
	inItself(body, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.CallExpr:
			does = does || isSelector(n.Fun, "panics", "Caught") || isSelector(n.Fun, "panics", "Logged")
		case *ast.DeferStmt:
			if f, ok := n.Call.Fun.(*ast.FuncLit); ok {
				inItself(f.Body, func(n ast.Node) {
					if c, ok := n.(*ast.CallExpr); ok {
						name, plain := c.Fun.(*ast.Ident)
						does = does || plain && name.Name == "recover"
					}
				})
			}
		}
	})
	return does
}

// inItself looks at what stands in the body of a function, but for the bodies of functions in it.
func inItself(body *ast.BlockStmt, look func(ast.Node)) {
	ast.Inspect(body, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok {
			return false
		}
		look(n)
		return true
	})
}

// TestWhoRecovers looks for goroutines in functions of a few lines: those that take panics down are told from those
// that only hold something which does.
func TestWhoRecovers(t *testing.T) {
	for code, want := range map[string]string{
		`go func() { panics.Caught(do) }()`: "guarded",
		`go func() { for { if err := panics.Logged(ctx, l, "x", do); err != nil { return } } }()`: "guarded",
		`w.Go(func() { defer func() { recover() }(); do() })`:                                     "guarded",
		`go func() { go func() { panics.Caught(do) }() }()`:                                       "bare guarded",
		`go func() { w.Go(func() { panics.Caught(do) }); do() }()`:                                "bare guarded",
		`w.Go(func() { defer func() { go func() { recover() }() }() })`:                           "bare bare",
		`go func() { later = func() { panics.Caught(do) } }()`:                                    "bare",
		`go func() { recover() }()`:                                                               "bare",
		`go s.run()`:                                                                              "bare",
		`w.Go(s.run)`:                                                                             "bare",
		`var p panics.Parts; p.Go(do)`:                                                            "",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc f() {"+code+"}", 0)
		if err != nil {
			t.Fatal(err)
		}
		f, ok := file.Decls[0].(*ast.FuncDecl)
		if !ok {
			t.Fatalf("%s is no body of a function", code)
		}
		var got []string
		for _, body := range goroutinesOf(f) {
			got = append(got, map[bool]string{true: "guarded", false: "bare"}[recovers(body)])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s, want %s", code, got, want)
		}
	}
}

// bareGoroutines are the functions of the server that begin goroutines on which no panic is taken down where they
// begin, as "package function", each with how many and why:
//
//   - waits: it waits for a moment, a signal or an end, and tells of it. Nobody's data are touched.
//   - loops: it runs loops or queues of the worker kit, which takes panics of their rounds down.
//   - inside: what it calls takes panics down.
//   - commits: it changes what is stored, and what memory says of that. Behind a panic in the middle nobody knows how
//     far it has come; the next start finds that out.
//   - process: it sees to a process of custom code, from the thread on that has started it.
//   - begins: the server has not begun yet, or ends.
func bareGoroutines() map[string]string {
	return map[string]string{
		"backup Service.Run":                     "loops",
		"backup Service.awaitMore":               "waits",
		"backup collector.collectAt":             "waits",
		"backup Service.note":                    "waits",
		"backup/repository Repository.NewBackup": "inside",
		"backup/repository Reader.contents":      "inside",
		"backup/repository patience.RoundTrip":   "waits",
		"build pass.fill":                        "inside",
		"build pass.halve":                       "inside inside",
		"checkpoint Service.Run":                 "loops loops",
		"checkpoint Service.awaitChange":         "waits",
		"checkpoint Service.make":                "waits",
		"clock Either":                           "waits",
		"clock Movable.Wait":                     "waits",
		"direct Before":                          "waits",
		"direct Front.Shutdown":                  "waits",
		"direct Front.accept":                    "inside",
		"fold Loader.Run":                        "inside",
		"groupcommit Committer.Add":              "commits",
		"fold Loader.startWorker":                "inside",
		"engine failureLog.keep":                 "inside",
		"engine deployed.renew":                  "inside",
		"clock Until":                            "waits",
		"feed Subscriptions.Run":                 "waits",
		"feed Subscriptions.awaitDue":            "waits",
		"feed Subscriptions.leaveBehind":         "waits",
		"feed Subscriptions.takeNext":            "waits inside",
		"feed reader.guard":                      "waits waits",
		"feed reader.pauseFor":                   "waits",
		"feed reader.rests":                      "waits",
		"httpapi nodeHandlers.pollChanges":       "waits",
		"httpapi streams.beginWatch":             "inside",
		"listener Service.Run":                   "loops waits inside",
		"listener pool.beginOne":                 "inside",
		"loading recorder.each":                  "inside inside",
		"container New":                          "process",
		"container Runner.spawn":                 "process",
		"container worker.begin":                 "process",
		"container worker.send":                  "process",
		"scrub Service.rest":                     "waits",
		"server Server.restore":                  "loops",
		"server Server.run":                      "inside loops waits begins",
		"server Server.standby":                  "inside",
		"server follower.round":                  "loops",
		"server handover.round":                  "inside",
		"pebble Open":                            "commits commits commits commits",
		"pebble Store.settle":                    "begins",
		"pebble core.unlessFaulted":              "begins",
		"postgres Node.takeOver":                 "waits",
		"postgres Store.begin":                   "commits inside inside",
		"postgres lookups.ask":                   "inside",
		"tail hub.start":                         "inside",
		"usage Meter.Run":                        "loops",
		"worker Queues.Run":                      "loops",
		"worker Kit.Every":                       "inside",
		"worker Queue.Run":                       "waits",
		"worker Queue.await":                     "waits",
		"worker Queue.start":                     "inside",
		"worker Queue.try":                       "waits",
	}
}

// TestGoroutines checks that the goroutines of the server take panics down, or have a reason to do without: a panic
// that nobody takes down ends the process for all tenants. The command line, and what else is one program for one user,
// may end.
func TestGoroutines(t *testing.T) {
	found, guarded := map[string]int{}, 0
	for name, files := range sources(t) {
		switch name {
		case "internal/edge/client", "internal/edge/client/send", "internal/edge/mcp", "internal/base/panics",
			"internal/storage/storetest", "internal/storage/postgres/pgtest", "internal/base/work/worktest",
			"internal/core/engine/enginetest":
			continue
		}
		for _, file := range files {
			for _, d := range file.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok || f.Body == nil || !strings.HasPrefix(name, "internal/") {
					continue
				}
				at := f.Name.Name
				if f.Recv != nil {
					at = receiver(f) + "." + at
				}
				at = belowFloor(name) + " " + at
				for _, body := range goroutinesOf(f) {
					if recovers(body) {
						guarded++
					} else {
						found[at]++
					}
				}
			}
		}
	}
	reasons := bareGoroutines()
	for _, at := range slices.Sorted(maps.Keys(found)) {
		if why, ok := reasons[at]; !ok || len(strings.Fields(why)) != found[at] {
			t.Errorf("%s begins %d goroutines on which a panic ends the process, and %d reasons are given: use panics.Parts, call panics.Caught or panics.Logged, or give one", at, found[at], len(strings.Fields(why)))
		}
	}
	for at := range reasons {
		if found[at] == 0 {
			t.Errorf("%s begins no such goroutine any more", at)
		}
	}
	if guarded < 10 {
		t.Errorf("%d goroutines that take panics down were found: this test looks in the wrong place", guarded)
	}
}

// belowFloor returns the folder of a package without internal and its floor: "backup/repository" of
// internal/custody/backup/repository.
func belowFloor(name string) string {
	name = strings.TrimPrefix(name, "internal/")
	if _, below, found := strings.Cut(name, "/"); found {
		return below
	}
	return name
}
