package container

import (
	"encoding/binary"
	"runtime"
	"syscall"
)

// denial is a system call that containers may not make.
type denial struct {
	name         string
	amd64, arm64 uint32
	errno        syscall.Errno
}

// absent stands for a system call that an architecture does not have.
const absent = 1<<32 - 1

// denials lists system calls that a worker has no use for and that have often been the way out of a sandbox, or around
// its memory limit. Calls that programs try before falling back to an older one answer as if the kernel did not know
// them.
func denials() []denial {
	const no, unknown = syscall.EPERM, syscall.ENOSYS
	return []denial{
		// Other processes.
		{"ptrace", 101, 117, no},
		{"process_vm_readv", 310, 270, no},
		{"process_vm_writev", 311, 271, no},
		{"process_madvise", 440, 440, no},
		{"kcmp", 312, 272, no},
		{"pidfd_getfd", 438, 438, no},
		// Namespaces and mounts.
		{"unshare", 272, 97, no},
		{"setns", 308, 268, no},
		{"mount", 165, 40, no},
		{"umount2", 166, 39, no},
		{"pivot_root", 155, 41, no},
		{"chroot", 161, 51, no},
		{"open_tree", 428, 428, no},
		{"move_mount", 429, 429, no},
		{"fsopen", 430, 430, no},
		{"fsconfig", 431, 431, no},
		{"fsmount", 432, 432, no},
		{"fspick", 433, 433, no},
		{"mount_setattr", 442, 442, no},
		{"name_to_handle_at", 303, 264, no},
		{"open_by_handle_at", 304, 265, no},
		{"quotactl", 179, 60, no},
		{"swapon", 167, 224, no},
		{"swapoff", 168, 225, no},
		// The kernel and its keys.
		{"add_key", 248, 217, no},
		{"request_key", 249, 218, no},
		{"keyctl", 250, 219, no},
		{"bpf", 321, 280, no},
		{"perf_event_open", 298, 241, no},
		{"userfaultfd", 323, 282, no},
		{"fanotify_init", 300, 262, no},
		{"init_module", 175, 105, no},
		{"finit_module", 313, 273, no},
		{"delete_module", 176, 106, no},
		{"kexec_load", 246, 104, no},
		{"kexec_file_load", 320, 294, no},
		{"reboot", 169, 142, no},
		{"syslog", 103, 116, no},
		{"acct", 163, 89, no},
		{"personality", 135, 92, no},
		{"iopl", 172, absent, no},
		{"ioperm", 173, absent, no},
		{"modify_ldt", 154, absent, no},
		{"vhangup", 153, 58, no},
		{"settimeofday", 164, 170, no},
		{"clock_settime", 227, 112, no},
		{"adjtimex", 159, 171, no},
		{"clock_adjtime", 305, 266, no},
		{"sethostname", 170, 161, no},
		{"setdomainname", 171, 162, no},
		// Memory that counts for no process.
		{"memfd_create", 319, 279, unknown},
		{"memfd_secret", 447, 447, unknown},
		{"shmget", 29, 194, unknown},
		{"shmat", 30, 196, unknown},
		{"msgget", 68, 186, unknown},
		{"semget", 64, 190, unknown},
		{"mq_open", 240, 180, unknown},
		// Ways around this filter.
		{"io_uring_setup", 425, 425, unknown},
		{"io_uring_enter", 426, 426, unknown},
		{"io_uring_register", 427, 427, unknown},
		{"clone3", 435, 435, unknown}, // its flags are out of the filter's reach; clone's are not
	}
}

const (
	namespaceFlags = 0x7E020000 // CLONE_NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET and NEWNS
	afUnix         = 1
	afInet         = 2
	afInet6        = 10
	afNetlink      = 16
	afPacket       = 17
	afVsock        = 40
)

// families returns the kinds of socket that containers may make. The kernel's AF_VSOCK, which reaches the host of a
// virtual machine, ignores network namespaces, so only this filter stops it.
func families(network bool) []uint32 {
	if network {
		return []uint32{afUnix, afInet, afInet6, afNetlink}
	}
	return []uint32{afUnix}
}

// seccompFilter returns a BPF program for the kernel, as an array of struct sock_filter. It is nil on architectures
// that the table has no numbers for.
func seccompFilter(network bool) []byte {
	var audit, clone, socket uint32
	number := func(d denial) uint32 { return d.amd64 }
	switch runtime.GOARCH {
	case "amd64":
		audit, clone, socket = 0xC000003E, 56, 41
	case "arm64":
		audit, clone, socket = 0xC00000B7, 220, 198
		number = func(d denial) uint32 { return d.arm64 }
	default:
		return nil
	}
	const (
		load = 0x20 // BPF_LD | BPF_W | BPF_ABS
		jeq  = 0x15 // BPF_JMP | BPF_JEQ | BPF_K
		jge  = 0x35 // BPF_JMP | BPF_JGE | BPF_K
		jset = 0x45 // BPF_JMP | BPF_JSET | BPF_K
		ret  = 0x06 // BPF_RET | BPF_K

		offsetNumber, offsetArch, offsetArg0 = 0, 4, 16 // in struct seccomp_data, little endian

		allow = 0x7FFF0000
		fail  = 0x00050000 // and the errno
		kill  = 0x80000000
		x32   = 0x40000000 // numbers of another ABI of amd64
	)

	// An instruction is a code, two jumps and a number.
	var program []byte
	add := func(code uint16, yes, no uint8, k uint32) {
		program = binary.LittleEndian.AppendUint16(program, code)
		program = append(program, yes, no)
		program = binary.LittleEndian.AppendUint32(program, k)
	}

	// Only the system calls of this architecture.
	add(load, 0, 0, offsetArch)
	add(jeq, 1, 0, audit)
	add(ret, 0, 0, kill)
	add(load, 0, 0, offsetNumber)
	add(jge, 0, 1, x32)
	add(ret, 0, 0, fail|uint32(syscall.ENOSYS))

	// What is denied.
	for _, d := range denials() {
		if n := number(d); n != absent {
			add(jeq, 0, 1, n)
			add(ret, 0, 0, fail|uint32(d.errno))
		}
	}

	// No clone into new namespaces.
	add(jeq, 0, 4, clone)
	add(load, 0, 0, offsetArg0)
	add(jset, 0, 1, namespaceFlags)
	add(ret, 0, 0, fail|uint32(syscall.EPERM))
	add(ret, 0, 0, allow)

	// Sockets of the families that are allowed, and no others.
	allowed := families(network)
	add(jeq, 0, uint8(2*len(allowed)+2), socket)
	add(load, 0, 0, offsetArg0)
	for _, family := range allowed {
		add(jeq, 0, 1, family)
		add(ret, 0, 0, allow)
	}
	add(ret, 0, 0, fail|uint32(syscall.EAFNOSUPPORT))
	add(ret, 0, 0, allow)
	return program
}

// seccompRules returns the same rules in the form of the OCI runtime specification.
func seccompRules(network bool) map[string]any {
	type object = map[string]any
	rules := []object{}
	for _, d := range denials() {
		rules = append(rules, object{
			"names": []string{d.name}, "action": "SCMP_ACT_ERRNO", "errnoRet": uint32(d.errno),
		})
	}
	// Each bit of its own, for the specification can compare under a mask with one value only.
	for bit := uint32(1); bit != 0; bit <<= 1 {
		if namespaceFlags&bit != 0 {
			rules = append(rules, object{
				"names": []string{"clone"}, "action": "SCMP_ACT_ERRNO", "errnoRet": uint32(syscall.EPERM),
				"args": []object{{"index": 0, "value": bit, "valueTwo": bit, "op": "SCMP_CMP_MASKED_EQ"}},
			})
		}
	}
	// The specification knows no "none of these" for one argument: with a network, the dangerous ones are named.
	socket := func(family uint32, operator string) {
		rules = append(rules, object{
			"names": []string{"socket"}, "action": "SCMP_ACT_ERRNO", "errnoRet": uint32(syscall.EAFNOSUPPORT),
			"args": []object{{"index": 0, "value": family, "op": operator}},
		})
	}
	if network {
		socket(afPacket, "SCMP_CMP_EQ")
		socket(afVsock, "SCMP_CMP_EQ")
	} else {
		socket(afUnix, "SCMP_CMP_NE")
	}
	return object{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules}
}
