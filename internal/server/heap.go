package server

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// leastFilled is the size of the smallest objects that are overwritten. They are too small to hold a word of text,
	// but their pages may have held larger objects before.
	leastFilled = 8
	// headed is the size above which objects with pointers begin with a runtime header, whose size is headerBytes.
	headed, headerBytes = 512, 8
	// fillBytes is how much of a size is allocated at a time. When the heap grows by as much fillLooks times in a row,
	// it has no free slots of this size; it may grow once because of another goroutine.
	fillBytes, fillLooks = 64 << 10, 2
)

// forgetHeap overwrites the unreferenced memory of the heap. The runtime frees objects without clearing them: their
// content stays readable in the memory of the process until it is allocated again.
//
//  1. Free pages are allocated once, which clears them: collections, and stacks of goroutines, would use them without
//     clearing them.
//  2. Two collections free what neither the program nor its pools refer to. The second one returns pages without
//     objects to the operating system, which provides them again empty.
//  3. The free slots in pages with other objects are allocated once too.
//  4. The memory that this has taken is returned.
//
// Memory that the runtime takes from freed pages without clearing it is out of reach: the unused part of stacks, and
// the rest after the last object of a span that is still in use. With GODEBUG=clobberfree=1 these hold nothing either,
// since the runtime overwrites each object when it frees it. forgetHeap takes as long as three collections, and for a
// moment about as much memory as is free on the heap.
func forgetHeap() {
	fillPages()
	runtime.GC()
	debug.FreeOSMemory()
	fillHeap()
	debug.FreeOSMemory()
}

// pageBytes is the size of the runtime's pages.
const pageBytes = 8 << 10

// fillPages allocates the free pages of the heap. The runtime uses first those that it has not returned to the
// operating system.
func fillPages() {
	free := []metrics.Sample{{Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(free)
	if free[0].Value.Kind() != metrics.KindUint64 {
		return
	}
	pages := make([][]byte, free[0].Value.Uint64()/pageBytes)
	for i := range pages {
		pages[i] = make([]byte, pageBytes)
	}
	runtime.KeepAlive(pages)
}

// fillHeap allocates all free slots of each size, once for objects with pointers and once for objects without: these
// are in different spans. The runtime uses free slots before it takes more pages.
func fillHeap() {
	sizes := []metrics.Sample{{Name: "/gc/heap/allocs-by-size:bytes"}}
	metrics.Read(sizes)
	if sizes[0].Value.Kind() != metrics.KindFloat64Histogram {
		return
	}
	var texts [][]byte
	var pointers [][]*byte
	for _, above := range sizes[0].Value.Float64Histogram().Buckets {
		if above <= leastFilled || above > 1<<20 {
			continue // an end of the histogram and not a size class
		}
		size := int(above) - 1
		untilGrown(size, func() { texts = append(texts, make([]byte, size)) })
		words := size / headerBytes
		if size > headed {
			words--
		}
		untilGrown(size, func() { pointers = append(pointers, make([]*byte, words)) })
	}
	runtime.KeepAlive(texts)
	runtime.KeepAlive(pointers)
}

// untilGrown allocates objects of a size until the heap grows for them, or until more was allocated than there were
// free slots.
func untilGrown(size int, allocate func()) {
	inUse, free := heapInUse()
	n := max(fillBytes/size, 1)
	for taken, grown := uint64(0),
		0; grown < fillLooks && taken < free+(fillLooks+1)*fillBytes; taken += uint64(n * size) {
		for range n {
			allocate()
		}
		now, _ := heapInUse()
		if grown++; now < inUse+uint64(n*size)/2 {
			grown = 0
		}
		inUse = now
	}
}

// heapInUse returns the size of the spans in use, and how much of it is free, in bytes.
func heapInUse() (inUse, free uint64) {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
	}
	metrics.Read(samples)
	free = samples[1].Value.Uint64()
	return samples[0].Value.Uint64() + free, free
}
