package server

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Memory returns how many bytes of memory this process may use: the memory of the machine, or the limit of its control
// group (a container's, or a unit's MemoryMax) if that is lower. It returns 0 if neither can be determined.
func Memory() int64 {
	return memory("/")
}

// storeCacheMiB is the default size of the store's cache for this many bytes of memory; 0 means unknown memory.
func storeCacheMiB(memory int64) int {
	return int(min(max(memory>>20/StoreCacheOf, LeastStoreCacheMiB), MostStoreCacheMiB))
}

// memory reads the system files below root.
func memory(root string) int64 {
	least := int64(math.MaxInt64)
	if raw, err := os.ReadFile(filepath.Join(root, "proc/meminfo")); err == nil { //nolint:gosec // a file of the system
		for line := range strings.Lines(string(raw)) {
			if fields := strings.Fields(line); len(fields) >= 2 && fields[0] == "MemTotal:" {
				if kilobytes, err := strconv.ParseInt(fields[1], 10, 64); err == nil && kilobytes > 0 {
					least = kilobytes << 10
				}
			}
		}
	}
	for _, file := range groupLimits(root) {
		raw, err := os.ReadFile(file) //nolint:gosec // files of the system
		if err != nil {
			continue
		}
		// "max", or a number that is larger than any memory, is no limit.
		if n, err := strconv.ParseInt(string(bytes.TrimSpace(raw)), 10, 64); err == nil && n > 0 {
			least = min(least, n)
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}

// groupLimits returns the files with the memory limits of the process's control groups, and of the groups around them.
func groupLimits(root string) []string {
	groups := filepath.Join(root, "sys/fs/cgroup")
	files := []string{filepath.Join(groups, "memory.max"), filepath.Join(groups, "memory/memory.limit_in_bytes")}
	raw, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup")) //nolint:gosec // a file of the system
	if err != nil {
		return files
	}
	for line := range strings.Lines(string(raw)) { // hierarchy:controllers:path
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for dir := filepath.Clean("/" + parts[2]); dir != "/"; dir = filepath.Dir(dir) {
			switch {
			case parts[1] == "":
				files = append(files, filepath.Join(groups, dir, "memory.max"))
			case strings.Contains(parts[1], "memory"):
				files = append(files, filepath.Join(groups, "memory", dir, "memory.limit_in_bytes"))
			}
		}
	}
	return files
}
