package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAcceptanceScript runs .ci/acceptance with suites that print what those of the program print.
func TestAcceptanceScript(t *testing.T) {
	const (
		turns = "FAIL  writers_that_look_at_a_state_take_turns \n      AssertionError: \n         "
		known = turns + "got  {\"balance\": 320, \"notes\": 319}\n         want {\"balance\": 320, \"notes\": 320}\n"
		other = "FAIL  other \n      AssertionError: \n         got  {\"balance\": 320, \"notes\": 319}\n"
	)
	script, err := filepath.Abs("../../.ci/acceptance")
	if err != nil {
		t.Fatal(err)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed: ", err)
	}
	for name, tc := range map[string]struct {
		suite, prints, exit string
		passes              bool
		says                string
	}{
		"all pass":           {"tick", "ok    one\n1 passed, 0 failed\n", "0", true, "--- tick: passed"},
		"one fails":          {"tick", "ok    one\n" + other + "1 passed, 1 failed\n", "1", false, "--- tick: FAILED"},
		"no case":            {"tick", "", "0", false, "tick ran no case."},
		"as is known":        {"repairs", "ok    one\n" + known + "ok    two\n2 passed, 1 failed\n", "1", true, "excused: writers_that_look_at_a_state_take_turns: "},
		"known elsewhere":    {"tick", "ok    one\n" + known + "1 passed, 1 failed\n", "1", false, "--- tick: FAILED"},
		"in another manner":  {"repairs", turns + "got  {\"balance\": 320, \"notes\": 31}\nok    one\n1 passed, 1 failed\n", "1", false, "take it out of the list"},
		"in another case":    {"repairs", turns + "got  {409: 1}\n" + other + "ok    one\n1 passed, 2 failed\n", "1", false, "take it out of the list"},
		"and another":        {"repairs", known + other + "ok    one\n1 passed, 2 failed\n", "1", false, "--- repairs: FAILED"},
		"not needed":         {"repairs", "ok    writers_that_look_at_a_state_take_turns\n1 passed, 0 failed\n", "0", false, "take it out of the list"},
		"the end is missing": {"repairs", "ok    one\n" + known, "1", false, "repairs ran no case."},
		"it took too long":   {"repairs", "ok    one\n" + known + "1 passed, 1 failed\n", "124", false, "--- repairs: FAILED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			suite := "#!/bin/sh\nfor d in \"$HOME\" \"$XDG_CONFIG_HOME\"; do [ -d \"$d\" ] && [ -z \"$(ls -A \"$d\")\" ] || { echo \"$d is no empty folder\"; exit 1; }; done\n" +
				"cat \"$(dirname \"$0\")/prints\"\nexit " + tc.exit + "\n"
			for file, text := range map[string]string{"run": suite, "prints": tc.prints} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			cmd := command(t, bash, script, dir, tc.suite)
			cmd.Env = append(cmd.Env, "HOME="+dir, "XDG_CONFIG_HOME="+dir)
			out, err := cmd.CombinedOutput()
			if (err == nil) != tc.passes || !strings.Contains(string(out), tc.says) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
