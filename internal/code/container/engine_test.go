package container_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"j17/internal/code/container"
)

// standIn is a container engine's command line, as far as it is used. It writes down what it is called with and has two
// images, whose programs answer with the id of their process: "staying" for many calls, "plain" for one.
const standIn = `#!/bin/sh
printf '%s\n' "$*" >> "$0.log"
case "$1" in
version) ;;
image)
  test "$2 $3 $5" = "inspect --format --" || exit 2
  case "$6" in
  staying) echo "sha256:5a many" ;;
  plain) echo "sha256:91 " ;;
  *) exit 1 ;;
  esac ;;
run)
  for image; do :; done
  case "$image" in
  sha256:5a) while read -r line; do echo $$; done ;;
  sha256:91) cat > /dev/null; echo $$ ;;
  esac ;;
kill) ;;
*) exit 2 ;;
esac
`

func TestEngine(t *testing.T) {
	for _, driver := range []container.Driver{container.Docker, container.Podman} {
		program := filepath.Join(t.TempDir(), string(driver))
		if err := os.WriteFile(program, []byte(standIn), 0o755); err != nil {
			t.Fatal(err)
		}
		r := open(t, container.Options{Driver: driver, Program: program})
		answers := map[string][]string{}
		for _, name := range []string{"staying", "plain"} {
			f, err := r.Image(t.Context(), container.ImageSource{Reference: name})
			if err != nil {
				t.Fatal(err)
			}
			answers[name] = []string{call(t, f, "1"), call(t, f, "1")}
		}
		if a := answers["staying"]; a[0] != a[1] {
			t.Error("another process answers the second call", a)
		}
		if a := answers["plain"]; a[0] == a[1] {
			t.Error("the same process answers the second call", a)
		}
		_, err := r.Image(t.Context(), container.ImageSource{Reference: "absent"})
		refused(t, err, `has no image "absent"`)
		_, err = r.Image(t.Context(), container.ImageSource{Archive: archiveOf(nil)})
		refused(t, err, "runs images by their name only")
		log, err := os.ReadFile(program + ".log")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"run --rm --interactive --pull never ", " --network none ", " --read-only ", " --cap-drop ALL ",
			" --security-opt no-new-privileges ",
			" --user 65534:65534 ", " --memory 134217728 --memory-swap 134217728 ", " --pids-limit 64 ", " -- sha256:5a\n", " -- sha256:91\n",
		} {
			if !strings.Contains(string(log), want) {
				t.Errorf("%s is not called with %q: %s", driver, want, log)
			}
		}
	}
}
