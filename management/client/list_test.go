// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

// TestDecodeList compares the parallel decoder with encoding/json, for valid and
// malformed lists.
func TestDecodeList(t *testing.T) {
	t.Parallel()

	list := api.List[api.Node]{Total: 7, Revision: 9, Continue: "x"}
	for i := range 2000 {
		list.Items = append(list.Items, api.Node{
			Name:      fmt.Sprintf("n-%d", i),
			Revision:  int64(i),
			LastError: strings.Repeat(`"]},{[\`, i%5) + `\`,
			Seen:      map[string]bool{"a": true},
			HostKeys:  []string{"a, b", "]"},
			Labels:    map[string]string{`k"`: "v"},
		})
	}

	body, err := json.Marshal(list)
	errtest.None(t, err)

	var want, got api.List[api.Node]
	errtest.None(t, json.Unmarshal(body, &want))

	if err := decodeList(body, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v; %d items", err, len(got.Items))
	}

	for count := 1; count < 9; count++ {
		parts, rest := split(body, count)
		if len(parts) != count || string(rest[:12]) != `{"items":[],` {
			t.Errorf("%d parts, want %d; rest %s", len(parts), count, rest)
		}
	}

	for _, bad := range [][]byte{
		body[:len(body)/2], body[:len(body)-1], []byte(`{"items":[`), []byte(`{"items":["\`), []byte(`[]`), nil,
	} {
		if err := decodeList(bad, &got); err == nil {
			t.Errorf("%.20s… was accepted", bad)
		}
	}

	wrong := []byte(strings.Replace(string(body), `"name":"n-1999"`, `"name":1999`, 1))
	if err := decodeList(wrong, &got); err == nil {
		t.Error("a number was accepted as a name")
	}
}
