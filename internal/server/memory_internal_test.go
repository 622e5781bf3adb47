package server

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMemory(t *testing.T) {
	const machine = "MemTotal:        2000000 kB\nMemFree:  1 kB\n"
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"nothing known", nil, 0},
		{"machine", map[string]string{"proc/meminfo": machine}, 2000000 << 10},
		{"container", map[string]string{"proc/meminfo": machine, "sys/fs/cgroup/memory.max": "536870912\n"}, 512 << 20},
		{
			"container without a limit",
			map[string]string{"proc/meminfo": machine, "sys/fs/cgroup/memory.max": "max\n"},
			2000000 << 10,
		},
		{"unit", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "0::/system.slice/j17.service\n",
			"sys/fs/cgroup/system.slice/j17.service/memory.max": "max\n", "sys/fs/cgroup/system.slice/memory.max": "1073741824\n",
		}, 1 << 30},
		{"version 1", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "5:memory:/docker/x\n",
			"sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": "268435456\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 256 << 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			for name, content := range tc.files {
				file := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := memory(root); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestStoreCacheMiB(t *testing.T) {
	for memory, want := range map[int64]int{
		0: 96, 512 << 20: 96, 1536 << 20: 96, 2 << 30: 128, 4 << 30: 256, 8 << 30: 512, 24 << 30: 1536, 32 << 30: 2048,
		1 << 40: 2048,
	} {
		if got := storeCacheMiB(memory); got != want {
			t.Errorf("of %d bytes of memory the store's cache has %d MiB, want %d", memory, got, want)
		}
	}
}
