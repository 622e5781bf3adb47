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
	const mayFail = "FAIL  erased_words_leave_the_memory \n      AssertionError: nothing within 60s\n"
	const failed = "FAIL  two \n      AssertionError: \n         got  {\"balance\": 319}\n"
	script, err := filepath.Abs("../../.ci/acceptance")
	if err != nil {
		t.Fatal(err)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed: ", err)
	}
	for name, tc := range map[string]struct {
		prints, exit string
		passes       bool
		says         string
	}{
		"one that may fail": {"ok    one\n" + mayFail + "1 passed, 1 failed\n", "1", true, "erased_words_leave_the_memory may fail: "},
		"and another one": {
			"ok    one\n" + mayFail + failed + "1 passed, 2 failed\n", "1", false, "--- gaps: FAILED",
		},
		"all pass":           {"ok    one\n1 passed, 0 failed\n", "0", true, "--- gaps: passed"},
		"one fails":          {"ok    one\n" + failed + "1 passed, 1 failed\n", "1", false, "--- gaps: FAILED"},
		"no case":            {"", "0", false, "gaps ran no case."},
		"none has passed":    {failed + "0 passed, 1 failed\n", "0", false, "gaps ran no case."},
		"the end is missing": {"ok    one\n" + failed, "1", false, "gaps ran no case."},
		"it took too long":   {"ok    one\n1 passed, 0 failed\n", "124", false, "--- gaps: FAILED"},
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
			cmd := startable(t, bash, script, dir, "gaps")
			cmd.Env = append(cmd.Env, "HOME="+dir, "XDG_CONFIG_HOME="+dir)
			out, err := cmd.CombinedOutput()
			if (err == nil) != tc.passes || !strings.Contains(string(out), tc.says) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
