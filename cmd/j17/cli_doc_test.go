package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestEveryCommandIsDocumented compares docs/reference/cli.md with the commands there are, and all pages with their
// flags:
//
//   - a command is named in a section of the reference, and each of its flags stands in that section,
//   - what a page calls, in a block or between backticks, and what the dashboard shows to be called, is a command that
//     has the flags it is called with,
//   - the table of exit codes has those that the program ends with.
func TestEveryCommandIsDocumented(t *testing.T) {
	root := rootCommand((&env{getenv: func(string) string { return "" }}))
	page := pageText(t, "../../docs/reference/cli.md")
	sections := sectionsOf(page)

	// From the program to the reference. The settings of a server have a page of their own, which another test holds
	// against them.
	common := flagsIn(sections["Which server"] + "--json --help")
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, below := range cmd.Commands() {
			if below.IsAvailableCommand() && cmd.Name() != "completion" {
				walk(below)
			}
		}
		if cmd.HasAvailableSubCommands() && cmd.Name() != "dev" || !cmd.HasParent() || cmd.Name() == "serve" {
			return
		}
		section := sectionOf(sections, cmd)
		if section == "" {
			t.Errorf("the reference does not name %q", cmd.CommandPath())
		}
		named := flagsIn(section)
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			short := f.Shorthand != "" && regexp.MustCompile("[ `[]-"+f.Shorthand+" ").MatchString(section)
			if !f.Hidden && !short && !slices.Contains(common, f.Name) && !slices.Contains(named, f.Name) {
				t.Errorf("the section that names %q does not name its flag --%s", cmd.CommandPath(), f.Name)
			}
		})
	}
	walk(root)

	// From the pages to the program.
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"../../docs/*/*.md", "../../examples/*/README.md", "../../README.md"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, more...)
	}
	views, err := filepath.Glob("../../dashboard/src/*/*.svelte")
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for _, name := range append(pages, views...) {
		of := callsIn
		if filepath.Ext(name) == ".svelte" {
			of = callsShown
		}
		for _, call := range of(pageText(t, name)) {
			calls++
			cmd, rest, err := root.Find(call)
			if err != nil || cmd.HasAvailableSubCommands() && len(rest) > 0 &&
				regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(rest[0]) {
				t.Errorf("%s calls 'j17 %s': there is no such command", name, strings.Join(call, " "))
				continue
			}
			for _, flag := range flagsIn(strings.Join(rest, " ")) {
				if cmd.Flags().Lookup(flag) == nil && cmd.InheritedFlags().Lookup(flag) == nil && flag != "help" &&
					flag != "version" {
					t.Errorf("%s calls 'j17 %s': %q has no flag --%s", name, strings.Join(call, " "), cmd.CommandPath(), flag)
				}
			}
		}
	}
	if calls < 200 {
		t.Errorf("only %d calls were found", calls)
	}

	// Exit codes.
	var documented []int
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(sections["Exit codes"], -1) {
		code, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		documented = append(documented, code)
	}
	want := []int{
		exitOK, exitFailure, exitUsage, exitInvalid, exitConflict, exitAuth, exitNotFound, exitVerifyFails,
		exitInterrupted,
	}
	if !slices.Equal(documented, want) {
		t.Errorf("the table of exit codes has %v, and the program ends with %v", documented, want)
	}
}

func pageText(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// sectionsOf divides a page at its headings of the second and third level.
func sectionsOf(page string) map[string]string {
	sections := map[string]string{}
	for _, part := range regexp.MustCompile(`(?m)^###? `).Split(page, -1)[1:] {
		title, text, _ := strings.Cut(part, "\n")
		sections[title] += text
	}
	return sections
}

// sectionOf is the text of the section that names a command: the one that is called as it is, or else that of a command
// beside it or above it which names it in full or, as in "`j17 operators list`, `create`", by its last word.
func sectionOf(sections map[string]string, cmd *cobra.Command) string {
	path := strings.TrimPrefix(cmd.CommandPath(), "j17 ")
	if text, ok := sections[path]; ok {
		return text
	}
	full := regexp.MustCompile("`j17 " + regexp.QuoteMeta(path) + "[` ]")
	group, word, _ := strings.Cut(path, " ")
	for title, text := range sections {
		if (title == group || strings.HasPrefix(title, group+" ")) && full.MatchString(text) {
			return text
		}
	}
	for _, text := range sections {
		if full.MatchString(text) {
			return text
		}
	}
	if text := sections[group]; word != "" &&
		regexp.MustCompile("`(?:j17 "+group+" )?"+regexp.QuoteMeta(word)+"[` ]").MatchString(text) {
		return text
	}
	return ""
}

// flagsIn lists the flags that a text names.
func flagsIn(text string) []string {
	var names []string
	for _, m := range regexp.MustCompile(`(?:^|[^-\w])--([a-z][a-z0-9-]*)`).FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

// callsShown lists what a page of the dashboard says that one may call. What it puts in stands for a word.
func callsShown(view string) [][]string {
	var calls [][]string
	for _, m := range regexp.MustCompile("<code>j17 ([^<]*)</code>").FindAllStringSubmatch(view, -1) {
		calls = append(calls, strings.Fields(regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(m[1], "x")))
	}
	return calls
}

// callsIn lists what a page calls the program with: in blocks of a shell up to the end of the command, and between
// backticks.
func callsIn(page string) [][]string {
	var calls [][]string
	add := func(text string) {
		text = regexp.MustCompile(`'[^']*'|"[^"]*"|[\[\]]`).ReplaceAllString(text, " ")
		if end := strings.IndexAny(text, "|;&#<>)"); end >= 0 {
			text = text[:end]
		}
		calls = append(calls, strings.Fields(text))
	}
	blocks := regexp.MustCompile("(?ms)^ *```(\\w*)[^\n]*\n(.*?)^ *```$")
	for _, m := range blocks.FindAllStringSubmatch(page, -1) {
		if m[1] != "sh" {
			continue
		}
		script := strings.ReplaceAll(m[2], "\\\n", " ")
		for _, call := range regexp.MustCompile(`(?m)(?:^ *|[|;(] *|&& |-K )(?:bin/)?j17 (.*)$`).FindAllStringSubmatch(script, -1) {
			add(call[1])
		}
	}
	for _, m := range regexp.MustCompile("`j17 ([^`]+)`").FindAllStringSubmatch(blocks.ReplaceAllString(page, ""), -1) {
		add(m[1])
	}
	return calls
}
