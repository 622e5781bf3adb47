package container

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// engine runs jobs with the command line of docker or podman, in images that the engine has.
type engine struct {
	runner  *Runner
	program string
}

func (d *engine) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	//nolint:gosec // running programs is the purpose
	text, err := exec.CommandContext(ctx, d.program, "version").CombinedOutput()
	if err != nil {
		return &Error{
			Message: fmt.Sprintf("The container engine %s does not answer (%v: %s). Start it, and let the user that the server runs as use it.",
				d.runner.opts.Driver, err, oneLine(string(text))),
			Err: err,
		}
	}
	return nil
}

// inspect returns the identity of an image that the engine has, and whether its processes answer many calls.
func (d *engine) inspect(ctx context.Context, reference string) (id string, many bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	format := `{{.Id}} {{with .Config}}{{index .Labels "` + callsLabel + `"}}{{end}}`
	//nolint:gosec // running programs is the purpose
	text, err := exec.CommandContext(ctx, d.program, "image", "inspect", "--format", format, "--", reference).Output()
	if err != nil {
		return "", false, &Error{
			Message: fmt.Sprintf("The container engine on this server has no image %q. Images are never fetched: load it there with %s pull or %s load.",
				reference, d.runner.opts.Driver, d.runner.opts.Driver),
			Err: err,
		}
	}
	id, label, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if id == "" || strings.HasPrefix(id, "-") {
		return "", false, fmt.Errorf("%s image inspect answered %q", d.program, text)
	}
	return id, label == callsMany, nil
}

func (d *engine) prepare(j *job) (*launch, error) {
	if j.root != "" || j.reference == "" {
		return nil, refuse("The container driver %s runs images that its engine has. Archives of images need bubblewrap or runc.", d.runner.opts.Driver)
	}
	// The folder's name is unique for as long as the folder exists.
	bundle, done, err := d.runner.stage()
	if err != nil {
		return nil, err
	}
	name := "j17-" + filepath.Base(bundle)
	//nolint:gosec // running programs is the purpose
	cmd := exec.CommandContext(d.runner.life, d.program, d.arguments(j, name)...)
	cmd.SysProcAttr = attributes(false)
	return &launch{
		cmd: cmd,
		kill: func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(d.runner.life), startTimeout)
			defer cancel()
			// The engine may not have begun with the container yet: then ending the command is what helps.
			//nolint:gosec // running programs is the purpose
			_ = exec.CommandContext(ctx, d.program, "kill", name).Run()
			_ = cmd.Process.Kill()
		},
		clean: done,
	}, nil
}

func (d *engine) arguments(j *job, name string) []string {
	memory := strconv.FormatInt(j.memory, 10)
	network := "none"
	if j.network {
		network = "bridge"
	}
	args := []string{
		"run", "--rm", "--interactive", "--pull", "never", "--name", name, "--hostname", "sandbox", "--network",
		network,
		"--read-only", "--tmpfs", "/tmp:rw,nosuid,nodev,noexec,size=" + strconv.FormatInt(j.scratch, 10),
		"--memory", memory, "--memory-swap", memory, "--pids-limit", strconv.Itoa(j.tasks),
		"--cpus", strconv.FormatFloat(j.cpus, 'f', -1, 64), "--user", fmt.Sprintf("%d:%d", nobody, nobody),
		"--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--ulimit", "core=0:0", "--ulimit",
		"nofile=256:256",
		"--log-driver", "none",
	}
	if j.build > 0 {
		args = append(args, "--tmpfs", "/build:rw,nosuid,nodev,exec,mode=1777,size="+strconv.FormatInt(j.build, 10))
	}
	for _, m := range j.mounts {
		args = append(args, "--mount", "type=bind,readonly,source="+m.source+",target="+m.target)
	}
	for _, v := range j.env {
		args = append(args, "--env", v)
	}
	if j.dir != "" {
		args = append(args, "--workdir", j.dir)
	}
	if len(j.args) > 0 {
		args = append(args, "--entrypoint", j.args[0], "--", j.reference)
		return append(args, j.args[1:]...)
	}
	return append(args, "--", j.reference)
}
