// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"slices"
	"sync"

	"github.com/contiv/cluster/management/api"
)

// largeList is the minimum size of a list to decode in parallel, in bytes.
// Decoding dominates the time of a request for ten thousand nodes.
const largeList = 256 << 10

// decodeList decodes a list; the items of a large list in parallel.
func decodeList[T any](body []byte, list *api.List[T]) error {
	if len(body) < largeList {
		return decode(bytes.NewReader(body), list)
	}

	// An unexpected form is left to the ordinary decoder, which reports the error.
	parts, rest := split(body, runtime.GOMAXPROCS(0))
	if len(parts) == 0 {
		return decode(bytes.NewReader(body), list)
	}
	if err := decode(bytes.NewReader(rest), list); err != nil {
		return err
	}

	items, errs := make([][]T, len(parts)), make([]error, len(parts))

	var all sync.WaitGroup
	for i, p := range parts {
		all.Go(func() {
			items[i] = make([]T, 0, p.count)
			errs[i] = json.Unmarshal(slices.Concat([]byte("["), p.text, []byte("]")), &items[i])
		})
	}

	all.Wait()
	list.Items = slices.Concat(items...)

	return errors.Join(errs...)
}

func decode(from io.Reader, out any) error {
	d := json.NewDecoder(from)
	d.UseNumber()
	return d.Decode(out)
}

// part is a run of items, separated by commas.
type part struct {
	text  []byte
	count int
}

// split cuts the items of a list into about the given number of parts and
// returns the list without items. It returns no parts for anything but a list.
func split(body []byte, parts int) (out []part, rest []byte) {
	const begin = `{"items":[`
	if !bytes.HasPrefix(body, []byte(begin)) {
		return nil, nil
	}

	from, count := len(begin), 1
	size := (len(body)-from)/parts + 1

	// Only commas outside strings and nested values separate items.
	depth, quoted := 0, false
	for i := from; i < len(body); i++ {
		c := body[i]
		switch {
		case quoted:
			if c == '\\' {
				i++
			} else {
				quoted = c != '"'
			}
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			depth++
		case c == ']' && depth == 0:
			if i > from {
				out = append(out, part{body[from:i], count})
			}
			return out, append([]byte(begin), body[i:]...)
		case c == '}' || c == ']':
			depth--
		case c == ',' && depth == 0 && i-from >= size:
			out = append(out, part{body[from:i], count})
			from, count = i+1, 1
		case c == ',' && depth == 0:
			count++
		}
	}

	return nil, nil
}
