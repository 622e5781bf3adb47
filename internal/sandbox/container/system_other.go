//go:build !linux

package container

import "syscall"

const nobody = 65534

func attributes(bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

func syncDisk() {}

func kernelRelease() string { return "" }
