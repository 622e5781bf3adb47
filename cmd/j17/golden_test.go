package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"j17"
	"j17/internal/edge/httpapi"
)

var update = flag.Bool("update", false, "write what the program has for users into testdata")

// golden compares a text with a file in testdata, or writes the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s says otherwise. If users shall see the change, run this test with -update:\n%s", file, diff)
	}
}

// TestCommandLines compares all commands, their flags and the defaults of these with testdata/commands.txt. Texts of
// the help are left out.
func TestCommandLines(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		// The usage as the help has it, and what else calls the command.
		cmd.InitDefaultHelpFlag()
		b.WriteString(cmd.UseLine())
		if len(cmd.Aliases) > 0 {
			fmt.Fprintf(&b, " (or %s)", strings.Join(cmd.Aliases, ", "))
		}
		if cmd.Hidden {
			b.WriteString(" (hidden)")
		}
		b.WriteString("\n")

		// Its flags. Those that it inherits stand with the command that has them.
		cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" {
				return
			}
			name := "--" + f.Name
			if f.Shorthand != "" {
				name += ", -" + f.Shorthand
			}
			fmt.Fprintf(&b, "  %s %s", name, f.Value.Type())
			if f.DefValue != "" {
				fmt.Fprintf(&b, " = %s", f.DefValue)
			}
			if f.NoOptDefVal != "" && f.Value.Type() != "bool" {
				fmt.Fprintf(&b, ", %s without a value", f.NoOptDefVal)
			}
			if f.Hidden {
				b.WriteString(" (hidden)")
			}
			b.WriteString("\n")
		})
		for _, below := range cmd.Commands() {
			walk(below)
		}
	}
	walk(rootCommand((&env{getenv: func(string) string { return "" }})))
	golden(t, "commands.txt", b.String())
}

// TestErrorCodes compares the codes of all errors, the statuses that the API answers with and the exit codes that
// commands end with, with testdata/errors.txt.
func TestErrorCodes(t *testing.T) {
	t.Parallel()
	var lines []string
	for _, code := range j17.Codes() {
		lines = append(
			lines, fmt.Sprintf("%s %d %d\n", code, httpapi.StatusOf(code), exitCode(j17.Errorf(code, "An error."))),
		)
	}
	slices.Sort(lines)
	golden(t, "errors.txt", strings.Join(lines, ""))
}

// goldenMetrics compares the names, types and labels in what a server has answered with testdata/metrics.txt.
func goldenMetrics(t *testing.T, answer string) {
	t.Helper()
	types, labels := map[string]string{}, map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (j17_\w+) (\w+)$`).FindAllStringSubmatch(answer, -1) {
		types[m[1]] = m[2]
	}
	for _, m := range regexp.MustCompile(`(?m)^(j17_\w+?)(?:_bucket)?\{(.*)\} `).FindAllStringSubmatch(answer, -1) {
		if types[m[1]] == "" {
			continue // the sum and the count of a histogram have the labels of its buckets
		}
		for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(labels[m[1]], label[1]) {
				labels[m[1]] = append(labels[m[1]], label[1])
			}
		}
	}
	var lines []string
	for name, typ := range types {
		lines = append(lines, strings.TrimSpace(name+" "+typ+" "+strings.Join(labels[name], ","))+"\n")
	}
	slices.Sort(lines)
	golden(t, "metrics.txt", strings.Join(lines, ""))
}

// goldenWork compares the names of the work that a server does in the background, which are a label of metrics, with
// testdata/background.txt.
func goldenWork(t *testing.T, p *process) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", "background.txt"))
	if err != nil && !*update {
		t.Fatal(err)
	}
	// Where GOGC is set, as it is for 'make test', the server leaves the collector as it is told.
	if os.Getenv("GOGC") != "" {
		want = []byte(strings.Replace(string(want), "collector\n", "", 1))
	}
	var names []string
	await(t, "all work in the background", func() bool {
		names = nil
		for _, m := range regexp.MustCompile(`(?m)^j17_background_running\{work="(\w+)"\}`).FindAllStringSubmatch(string(metrics(t, p)), -1) {
			names = append(names, m[1]+"\n")
		}
		return *update || len(names) >= strings.Count(string(want), "\n")
	})
	if *update {
		golden(t, "background.txt", strings.Join(names, ""))
	} else if diff := cmp.Diff(string(want), strings.Join(names, "")); diff != "" {
		t.Errorf("the names in testdata/background.txt and those of the server (+):\n%s", diff)
	}
}
