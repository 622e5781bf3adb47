//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// killWithChildren makes a command the first of a group of processes, which is killed as a whole.
func killWithChildren(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
