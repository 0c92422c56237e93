package ebpf

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

func FuzzParseTracepoint(f *testing.F) {
	for _, seed := range []string{"158\n", "0\n", "-1", "4294967296", "", "1 2"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := parseTracepoint(text)
		if err == nil && (id == 0 || strings.TrimLeft(strings.TrimSpace(text), "0") != strconv.FormatUint(id, 10)) {
			t.Fatalf("%q is tracepoint %d", text, id)
		}
		if err != nil && !strings.Contains(err.Error(), strconv.Quote(text)) {
			t.Fatalf("%q: %v; want it named", text, err)
		}
	})
}

// ringBytes is the size of a ring in memory of the test, for 18 events and a little.
const ringBytes = 1 << 10

// memoryRing is a ring as the kernel maps it, the records twice on end, but in memory of the test, with what was written and taken before at start.
type memoryRing struct {
	Ring
	end uint64
}

func newMemoryRing(start uint64) *memoryRing {
	word := func() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(new(uint64))), 8) }
	r := &memoryRing{Ring: Ring{consumer: word(), producer: word(), mask: ringBytes - 1}, end: start}
	whole := make([]uint64, 2*ringBytes/8) // aligned as pages are
	r.records = unsafe.Slice((*byte)(unsafe.Pointer(&whole[0])), 2*ringBytes)
	binary.NativeEndian.PutUint64(r.consumer, start)
	binary.NativeEndian.PutUint64(r.producer, start)
	return r
}

// write a record as the kernel does, unless there is no room for it.
func (r *memoryRing) write(header uint32, data []byte) bool {
	record := binary.NativeEndian.AppendUint32(nil, header)
	record = append(append(record, 0, 0, 0, 0), data...)
	length := uint64(len(record)+7) &^ 7
	if r.end+length-binary.NativeEndian.Uint64(r.consumer) > ringBytes {
		return false
	}
	for i, b := range record {
		at := (r.end + uint64(i)) & r.mask
		r.records[at], r.records[at+ringBytes] = b, b
	}
	r.end += length
	binary.NativeEndian.PutUint64(r.producer, r.end)
	return true
}

// FuzzRing: of the records in a ring, wherever in it they begin, those that are events are read, whole, in order and once; what was discarded and what
// has another size is passed over; what is still being written, and all behind it, waits. A script has a byte for each step: its lowest
// bits say what is done, the others fill the record.
func FuzzRing(f *testing.F) {
	const event, discarded, short, long, busy, take = 0, 1, 2, 3, 4, 5
	f.Add(uint64(0), []byte{event, event | 8, take, take, take})
	f.Add(uint64(ringBytes-8), []byte{event, discarded, short | 16, long, event | 24, busy, event, take, take, take})
	f.Add(uint64(1<<40-16), slices.Repeat([]byte{event | 32, event | 40, take}, 40))
	f.Add(uint64(ringBytes-24), slices.Repeat([]byte{long}, 60))
	size := unsafe.Sizeof(Event{})
	f.Fuzz(func(t *testing.T, start uint64, script []byte) {
		r := newMemoryRing(start &^ (1<<63 | 7)) // the kernel counts from 0, and never so far that it wraps around
		var want []Event
		blocked := false
		for i, step := range script {
			data := slices.Repeat([]byte{step ^ byte(i)}, int(size))
			header := uint32(size)
			switch step & 7 {
			case event:
			case discarded:
				header |= recordLost
			case short:
				data = data[:step>>3]
				header = uint32(len(data))
			case long:
				data = append(data, data[:8+step>>3]...)
				header = uint32(len(data))
			case busy:
				header |= recordBusy
			default:
				readAll(t, r, &want)
				continue
			}
			if r.write(header, data) {
				blocked = blocked || header&recordBusy != 0
				if header == uint32(size) && !blocked {
					want = append(want, *(*Event)(unsafe.Pointer(&data[0])))
				}
			}
		}
		readAll(t, r, &want)
		if consumed := binary.NativeEndian.Uint64(r.consumer); consumed > r.end || !blocked && consumed != r.end {
			t.Fatalf("read up to %d of %d", consumed, r.end)
		}
	})
}

// readAll reads what can be read, which are the events that are wanted.
func readAll(t *testing.T, r *memoryRing, want *[]Event) {
	t.Helper()
	var e Event
	for ; r.read(&e); *want = (*want)[1:] {
		if len(*want) == 0 || e != (*want)[0] {
			t.Fatalf("read %+v; want the first of %+v", e, *want)
		}
	}
	if len(*want) > 0 {
		t.Fatalf("%+v were not read", *want)
	}
}
