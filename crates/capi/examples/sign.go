// One signature, and a batch of rows, from Go. With PKG_CONFIG_PATH and LD_LIBRARY_PATH set: `go run sign.go`.
package main

// #cgo pkg-config: hypergrove
// #include <hypergrove.h>
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"
)

// check returns what a call that failed reports. The sentence belongs to the thread that called: lock it for as long.
func check(call func() C.hg_status) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if status := call(); status != C.HG_OK {
		return fmt.Errorf("%s: %s", C.GoString(C.hg_status_text(status)), C.GoString(C.hg_error_text()))
	}
	return nil
}

func bytes(slice []byte) (*C.uint8_t, C.size_t) {
	return (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(slice))), C.size_t(len(slice))
}

func run() error {
	var engine *C.hg_engine
	if err := check(func() C.hg_status { return C.hg_engine_new(nil, &engine) }); err != nil {
		return err
	}
	defer C.hg_engine_free(engine)
	const set = C.HG_SLH_DSA_SHA2_128F
	var key *C.hg_private_key
	if err := check(func() C.hg_status { return C.hg_private_key_generate(engine, set, &key) }); err != nil {
		return err
	}
	defer C.hg_private_key_free(key)
	var public *C.hg_public_key
	if err := check(func() C.hg_status { return C.hg_public_key_of(key, &public) }); err != nil {
		return err
	}
	defer C.hg_public_key_free(public)

	signature := make([]byte, C.hg_signature_size(set))
	message, length := bytes([]byte("Dear reader"))
	out, room := bytes(signature)
	if err := check(func() C.hg_status { return C.hg_sign(engine, key, nil, message, length, out, room) }); err != nil {
		return err
	}
	if err := check(func() C.hg_status { return C.hg_verify(engine, public, nil, message, length, out, room) }); err != nil {
		return err
	}

	// Two rows: the signature, and one that is changed. A struct that C gets may point to Go's memory only if that is pinned.
	signatures := append(append([]byte{}, signature...), signature...)
	signatures[len(signature)] ^= 1
	messages := []byte("Dear readerDear reader")
	statuses := make([]byte, 2)
	var pins runtime.Pinner
	defer pins.Unpin()
	column := func(values []byte, width C.size_t) C.hg_column {
		first, length := bytes(values)
		pins.Pin(first)
		return C.hg_column{bytes: first, length: length, width: width}
	}
	batch := C.hg_verify_batch{
		size: C.sizeof_hg_verify_batch, rows: 2, key: public,
		messages: column(messages, length), signatures: column(signatures, room),
	}
	verdicts, _ := bytes(statuses)
	if err := check(func() C.hg_status { return C.hg_verify_rows(engine, &batch, nil, verdicts) }); err != nil {
		return err
	}
	if statuses[0] != C.HG_ROW_VALID || statuses[1] != C.HG_ROW_INVALID {
		return fmt.Errorf("the rows have the statuses %v", statuses)
	}
	fmt.Println("Go: a valid signature, and rows of which the second is not")
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}
