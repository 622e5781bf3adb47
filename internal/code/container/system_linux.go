package container

import (
	"os"
	"strings"
	"syscall"
)

const nobody = 65534

// attributes returns how the driver's process starts: in a process group of its own, killed when the thread that
// started it ends and, when drop is set and this process is root's, as nobody.
func attributes(drop bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if drop && os.Geteuid() == 0 {
		a.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return a
}

// syncDisk flushes written data to disk.
func syncDisk() { syscall.Sync() }

// lock takes the lock of an open file, which ends when the file is closed; false means that another process has it.
func lock(file *os.File) bool {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// ownerOf returns the user whom a file belongs to, -1 where it is not known.
func ownerOf(info os.FileInfo) int {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid)
	}
	return -1
}

// kernelRelease returns the kernel's version, as in "6.1.0-18-amd64".
func kernelRelease() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(release))
}
