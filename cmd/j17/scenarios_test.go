package main

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"j17"
)

// TestExampleScenarios runs the scenarios of every example on its spec.
func TestExampleScenarios(t *testing.T) {
	for _, app := range apps() {
		t.Run(app, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			var out, errs strings.Builder
			none := func(string) string { return "" }
			args := []string{"test", "--spec", examplePath(app, "spec.json"), examplePath(app, "scenarios")}
			if code := run(t.Context(), args, none, strings.NewReader(""), &out, &errs); code != exitOK {
				t.Errorf("exit code %d\n%s%s", code, out.String(), errs.String())
			}
			if !strings.Contains(out.String(), " passed, 0 failed\n") {
				t.Error(out.String())
			}
			left, err := filepath.Glob(filepath.Join(os.TempDir(), "j17-test-*"))
			if err != nil || len(left) > 0 {
				t.Error("left behind:", left, err)
			}
		})
	}
}

// TestConfigFile checks that contexts are kept where others cannot read them, and that a damaged file is not
// overwritten.
func TestConfigFile(t *testing.T) {
	dir := t.TempDir()
	getenv := func(name string) string {
		if name == "XDG_CONFIG_HOME" {
			return dir
		}
		return ""
	}
	call := func(stdin string, args ...string) (int, string) {
		var errs strings.Builder
		return run(t.Context(), args, getenv, strings.NewReader(stdin), io.Discard, &errs), errs.String()
	}
	const key = "j17_0_prod_g9ry51yhfdyytafas15b3m2jysvtw9r73ueu3gq"
	if code, text := call(
		key+"\n", "context", "set", "shop", "--server", "https://example.com", "--instance", "shop", "--key-stdin",
	); code != exitOK {
		t.Fatal(code, text)
	}
	name := filepath.Join(dir, "j17", "config.json")
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info, err)
	}
	raw, err := os.ReadFile(name)
	if err != nil || !strings.Contains(string(raw), `"prod": "`+key+`"`) {
		t.Fatal(string(raw), err)
	}
	// Another server must not get the credentials of the old one.
	if code, text := call("", "context", "set", "shop", "--server", "https://example.org"); code != exitOK {
		t.Fatal(code, text)
	}
	if raw, err = os.ReadFile(name); err != nil || strings.Contains(string(raw), key) {
		t.Fatal(string(raw), err)
	}
	for _, damaged := range []string{"{", `{"contexts": {"a": null}}`, `{"contexts": [], "x": 1}`} {
		if err := os.WriteFile(name, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, text := call("", "context", "set", "b", "--server", "https://example.com"); code != exitFailure ||
			!strings.Contains(text, "is damaged") {
			t.Error(code, text)
		}
		if raw, err := os.ReadFile(name); err != nil || string(raw) != damaged {
			t.Error("the damaged file was overwritten")
		}
	}
	if err := os.Chmod(name, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, text := call("", "context", "list"); !strings.Contains(text, "can be read by others") {
		t.Error(text)
	}
}

// TestWhichContext checks what counts before what, and that credentials stay with their server.
func TestWhichContext(t *testing.T) {
	e := &env{err: io.Discard}
	variables := map[string]string{"XDG_CONFIG_HOME": t.TempDir()}
	e.getenv = func(name string) string { return variables[name] }
	e.interruptible = func(in io.Reader) io.Reader { return in }
	kept := &config{Current: "one", Contexts: map[string]*serverContext{
		"one": {
			Server: "https://one.example", Instance: "shop", Environment: "staging",
			Keys: map[j17.Environment]string{"prod": "one-prod", "staging": "one-staging"},
		},
		"two": {Server: "https://two.example:8443", Instance: "shop"},
	}}
	if err := e.saveConfig(kept); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name      string
		flags     remote
		variables map[string]string
		want      target
		err       string
	}{
		{name: "the current context", want: target{url: "https://shop-staging.one.example", key: "one-staging"}},
		{
			name: "a flag for the environment", flags: remote{env: "prod"},
			want: target{url: "https://shop.one.example", key: "one-prod"},
		},
		{
			name: "a variable for the environment", variables: map[string]string{"J17_ENV": "prod"},
			want: target{url: "https://shop.one.example", key: "one-prod"},
		},
		{name: "a key for another instance is not sent", flags: remote{instance: "bank"}, err: "there is no API key for https://bank-staging.one.example"},
		{name: "an address stands alone", variables: map[string]string{"J17_URL": "https://shop.three.example"}, err: "there is no API key for https://shop.three.example"},
		{
			name: "a context by flag is before variables", flags: remote{context: "one"}, variables: map[string]string{
				"J17_URL": "https://three.example", "J17_KEY": "variable", "J17_ENV": "test",
			}, want: target{url: "https://shop-staging.one.example", key: "one-staging"},
		},
		{name: "variables are before the current context", variables: map[string]string{"J17_KEY": "variable", "J17_CONTEXT": "two"}, want: target{url: "https://shop.two.example:8443", key: "variable"}},
		{name: "a context that is not there", flags: remote{context: "three"}, err: `there is no context "three"`},
		{name: "two servers at once", flags: remote{context: "one", url: "https://x.example"}, err: "give one of them"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config := variables["XDG_CONFIG_HOME"]
			variables = map[string]string{"XDG_CONFIG_HOME": config}
			maps.Copy(variables, tc.variables)
			got, err := e.resolve(&tc.flags)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Error(got, err)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("%+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
}
