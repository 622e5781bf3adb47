package main

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/edge/client"
	"j17/internal/edge/scenario"
	"j17/internal/lang/diag"
)

// defaultScenarios is the folder of scenarios where none is named.
const defaultScenarios = "scenarios"

// maxScenarioFile bounds the size of a file of scenarios.
const maxScenarioFile = 16 << 20

// testOptions are the flags of a run of scenarios.
type testOptions struct {
	spec, run, junit string
	blobs            localBlobs
	parallel         int
	asJSON           bool
}

func testCommand(e *env) *cobra.Command {
	var o testOptions
	cmd := &cobra.Command{
		Use:   "test [FOLDER|FILE...]",
		Short: "Run scenarios: given some events, when one is written, then this is the state",
		Long: `Run the scenarios in files and in folders (*.json, by default in the folder scenarios), each with identifiers of its own, and
show where the results differ from them. 'j17 docs testing' says how to write them.

They run against an environment of a server, by default test, where the events that they write stay. With --spec they run
without a server: each scenario for itself, on a spec file, in a folder that is removed afterwards.

Exit code 0: all is as the scenarios say, 1: something is not, 3: a scenario or the spec is not valid.`,
		Example: `  j17 test --spec spec.json
  j17 test scenarios/orders --env staging --run 'refund'
  j17 test --spec spec.json --junit report.xml`,
	}

	r := remoteFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.spec, "spec", "", "run without a server, on a spec `file`")
	o.blobs.flag(f, "with --spec: upload a file as a blob first")
	f.StringVar(&o.run, "run", "", "only scenarios whose names match a `regular expression`")
	f.StringVar(&o.junit, "junit", "", "write a report in the form of JUnit to a `file`")
	f.IntVar(&o.parallel, "parallel", 4, "`number` of scenarios that run at the same time")
	jsonFlag(cmd, &o.asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// Mistakes in the command line or in a scenario are reported before anything is run.
		if o.parallel < 1 {
			return usageError{errors.New("--parallel takes a whole number from 1 on")}
		}
		if o.spec != "" && *r != (remote{}) {
			return usageError{errors.New("--spec runs without a server, so the flags that name one do not go with it")}
		}
		if o.spec == "" && len(o.blobs) > 0 {
			return usageError{errors.New("--blob goes with --spec; 'j17 blobs put' uploads to a server")}
		}
		files, err := scenarioFiles(args)
		if err != nil {
			return err
		}
		if err := checkJUnit(e, &o, files); err != nil {
			return err
		}
		all, err := scenarios(e, files, o.run)
		if err != nil {
			return err
		}

		// Where they run.
		var world scenarioWorld
		if o.spec != "" {
			world, err = localWorld(cmd.Context(), e, &o)
		} else {
			world, err = serverWorld(e, r)
		}
		if err != nil {
			return interrupted(cmd.Context(), err)
		}

		if o.spec == "" {
			e.startChange()
		}

		// They run, and what they have left is removed before anything is reported.
		results, err := runScenarios(cmd.Context(), world, all, o.parallel)
		if err = errors.Join(err, world.close()); err != nil {
			return interrupted(cmd.Context(), err)
		}
		if o.spec == "" {
			e.reportChange("the scenarios were run")
			e.hintUnprinted("What they wrote stays")
		}
		return reportScenarios(e, results, &o)
	}
	return cmd
}

// checkJUnit refuses a report in the place of a file that is read.
func checkJUnit(e *env, o *testOptions, files []string) error {
	if o.junit == "" {
		return nil
	}
	read := slices.Clone(files)
	if o.spec != "" {
		read = append(read, o.spec)
	}
	for _, b := range o.blobs {
		read = append(read, b.file)
	}
	for _, file := range read {
		if e.sameFile(o.junit, file) {
			return usageError{fmt.Errorf("--junit cannot be %s: the report would replace what is tested", fileName(o.junit))}
		}
	}
	return nil
}

// scenarios reads the scenarios of files whose names match a pattern, and reports all that is wrong with any of them.
func scenarios(e *env, files []string, pattern string) ([]*scenario.Scenario, error) {
	wanted, err := regexp.Compile(pattern)
	if err != nil {
		return nil, usageError{fmt.Errorf("--run %q is no regular expression: %w", pattern, err)}
	}
	var all []*scenario.Scenario
	invalid := false
	for _, file := range files {
		raw, err := e.readText(file, maxScenarioFile, "Split it into several files.")
		if err != nil {
			return nil, err
		}
		found, wrong := scenario.Parse(file, string(raw))
		if len(wrong) > 0 {
			invalid = true
			e.note("%s", diag.Render(file, raw, wrong))
		}
		all = append(all, found...)
	}
	if invalid {
		return nil, silent{j17.Errorf(j17.CodeSchemaViolation, "Scenarios are not valid")}
	}
	all = slices.DeleteFunc(all, func(s *scenario.Scenario) bool { return !wanted.MatchString(s.Name) })
	if len(all) == 0 {
		return nil, notFound("There are no scenarios in %s whose names match %q.", strings.Join(files, ", "), pattern)
	}
	return all, nil
}

// scenarioFiles lists the files that arguments name: themselves, and those of JSON in folders.
func scenarioFiles(args []string) ([]string, error) {
	if len(args) == 0 {
		if _, err := os.Stat(defaultScenarios); errors.Is(err, fs.ErrNotExist) {
			return nil, usageError{errors.New("there is no folder scenarios here: name the files or folders to run")}
		}
		args = []string{defaultScenarios}
	}
	var files []string
	for _, arg := range args {
		if arg == "-" {
			files = append(files, arg)
			continue
		}
		before := len(files)
		err := filepath.WalkDir(arg, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && (path == arg || filepath.Ext(path) == ".json") {
				files = append(files, path)
			}
			return err
		})
		if errors.Is(err, fs.ErrNotExist) {
			return nil, notFound("There is no file or folder %s.", fileName(arg))
		}
		if err != nil {
			return nil, unreadable(arg, err)
		}
		if len(files) == before {
			return nil, notFound("There are no scenarios in %s: they are files with names that end in .json.", fileName(arg))
		}
	}
	return files, nil
}

// scenarioWorld is what scenarios run in.
type scenarioWorld struct {
	// client returns the environment for the nth scenario, and what stores events in it as they are, nil where nothing
	// does.
	client func(ctx context.Context, n int) (*client.Client, *scenario.Past, error)
	close  func() error
}

// serverWorld is an environment of a server. All scenarios share it, so it is prod only where prod is named.
func serverWorld(e *env, r *remote) (scenarioWorld, error) {
	s, err := e.connection(r)
	if err != nil {
		return scenarioWorld{}, err
	}
	u, err := s.address()
	if err != nil {
		return scenarioWorld{}, err
	}
	chosen := *r
	if env := environmentOf(u.Hostname(), j17.Environment(s.env.value)); env == j17.Prod && r.env != string(j17.Prod) {
		if s.env.value == string(j17.Prod) {
			return scenarioWorld{}, usageError{fmt.Errorf("scenarios write events, which stay, and this would be prod (%s): say --env prod if you want that, or another environment", s.env.from)}
		}
		chosen.env = string(j17.Test)
	}
	c, err := e.connect(&chosen)
	if err == nil {
		e.note(
			"Running in %s of %s.\n", environmentOf(u.Hostname(), j17.Environment(cmp.Or(chosen.env, s.env.value))),
			c.URL(),
		)
	}
	return scenarioWorld{
		func(context.Context, int) (*client.Client, *scenario.Past, error) { return c, nil, nil },
		func() error { return nil },
	}, err
}

// scenarioResult is the outcome of a scenario.
type scenarioResult struct {
	Name     string             `json:"name"`
	File     string             `json:"file"`
	Line     int                `json:"line"`
	Passed   bool               `json:"passed"`
	Seconds  float64            `json:"seconds"`
	Failures []scenario.Failure `json:"failures,omitempty"`
}

func runScenarios(
	ctx context.Context, world scenarioWorld, all []*scenario.Scenario, parallel int,
) ([]scenarioResult, error) {
	results := make([]scenarioResult, len(all))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	var now clock.System
	for i, s := range all {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			c, past, err := world.client(ctx, i)
			if err != nil {
				return err
			}
			start := now.Now()
			failures, err := s.Run(ctx, c, past)
			switch {
			case exitCode(err) == exitAuth: // no scenario can succeed then
				return fmt.Errorf("%w To run scenarios without a server and a key, name a spec with --spec", err)
			case err != nil:
				return fmt.Errorf("%s:%d: %w", fileName(s.File), s.Line, err)
			}
			results[i] = scenarioResult{
				s.Name, s.File, s.Line, len(failures) == 0, now.Now().Sub(start).Seconds(), failures,
			}
			return nil
		})
	}
	return results, group.Wait()
}

func reportScenarios(e *env, results []scenarioResult, o *testOptions) error {
	failed := 0
	for _, r := range results {
		if !r.Passed {
			failed++
		}
	}
	if o.junit != "" {
		if err := writeJUnit(o.junit, results); err != nil {
			return fmt.Errorf("the report of --junit: %w", err)
		}
	}
	if o.asJSON {
		err := e.printJSON(struct {
			Passed    int              `json:"passed"`
			Failed    int              `json:"failed"`
			Scenarios []scenarioResult `json:"scenarios"`
		}{len(results) - failed, failed, results})
		if err != nil {
			return err
		}
	} else if err := printScenarios(e, results, failed); err != nil {
		return err
	}
	if failed > 0 {
		return silent{errors.New("scenarios failed")}
	}
	return nil
}

func printScenarios(e *env, results []scenarioResult, failed int) error {
	var b strings.Builder
	good, bad, end := "", "", ""
	if e.colored(e.out) {
		good, bad, end = "\x1b[32m", "\x1b[31m", "\x1b[0m"
	}
	for _, r := range results {
		if r.Passed {
			fmt.Fprintf(&b, "%sok%s    %s\n", good, end, plain(r.Name))
			continue
		}
		fmt.Fprintf(&b, "%sFAIL%s  %s\n", bad, end, plain(r.Name))
		for _, f := range r.Failures {
			fmt.Fprintf(&b, "      %s:%d: %s\n", fileName(r.File), f.Line, plain(f.Message))
			if f.Expected != "" || f.Got != "" {
				fmt.Fprintf(&b, "        expected %s\n        got      %s\n", plain(cmp.Or(f.Expected, "nothing")), plain(cmp.Or(f.Got, "nothing")))
			}
		}
	}
	fmt.Fprintf(&b, "%s: %d passed, %d failed\n", j17.Count(len(results), "scenario"), len(results)-failed, failed)
	_, err := io.WriteString(e.out, b.String())
	return err
}

// The report that continuous integration reads.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		File    string        `xml:"file,attr"`
		Line    int           `xml:"line,attr"`
		Time    string        `xml:"time,attr"`
		Failure *junitFailure `xml:"failure"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// writeJUnit writes a report with a suite for each file.
func writeJUnit(name string, results []scenarioResult) error {
	var out junitSuites
	times := map[string]float64{}
	for _, r := range results {
		if n := len(out.Suites); n == 0 || out.Suites[n-1].Name != r.File {
			out.Suites = append(out.Suites, junitSuite{Name: r.File})
		}
		suite := &out.Suites[len(out.Suites)-1]
		c := junitCase{
			Name: r.Name, Class: strings.TrimSuffix(r.File, ".json"), File: r.File, Line: r.Line,
			Time: fmt.Sprintf("%.3f", r.Seconds),
		}
		if !r.Passed {
			var text strings.Builder
			for _, f := range r.Failures {
				fmt.Fprintf(&text, "%s:%d: %s\n", r.File, f.Line, f.Message)
				if f.Expected != "" || f.Got != "" {
					fmt.Fprintf(
						&text, "  expected %s\n  got      %s\n", cmp.Or(f.Expected, "nothing"),
						cmp.Or(f.Got, "nothing"),
					)
				}
			}
			c.Failure = &junitFailure{r.Failures[0].Message, text.String()}
			suite.Failures++
		}
		suite.Tests++
		times[r.File] += r.Seconds
		suite.Time = fmt.Sprintf("%.3f", times[r.File])
		suite.Cases = append(suite.Cases, c)
	}
	raw, err := xml.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	return replace(name, append([]byte(xml.Header), append(raw, '\n')...), 0o644)
}
