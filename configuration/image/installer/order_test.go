// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

func TestDecode(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]Order{
		`{}`: {},
		`{"interface": {"mac": "52:54:00:12:34:56", "address": "10.9.1.100/24", "gateway": "10.9.1.1",
			"dns": ["10.9.1.2", "fd00::2"]}}`: {Interface: Interface{
			MAC: "52:54:00:12:34:56", Address: netip.MustParsePrefix("10.9.1.100/24"),
			Gateway: netip.MustParseAddr("10.9.1.1"),
			DNS:     []netip.Addr{netip.MustParseAddr("10.9.1.2"), netip.MustParseAddr("fd00::2")},
		}},
		`{"interface": {"address": "fd00::100/64", "gateway": "fe80::1"}}`: {Interface: Interface{
			Address: netip.MustParsePrefix("fd00::100/64"), Gateway: netip.MustParseAddr("fe80::1"),
		}},
		`{"interface": {"address": "10.9.1.100/24"}, "report": {"url": "https://m1:9480/boot?x=1",
			"token": "0123456789-_abCD"}}`: {
			Interface: Interface{Address: netip.MustParsePrefix("10.9.1.100/24")},
			Report:    Report{URL: "https://m1:9480/boot?x=1", Token: "0123456789-_abCD"},
		},
	} {
		got, err := Decode([]byte(text))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()

	for text, why := range map[string]string{
		``:                                     "EOF",
		`{`:                                    "unexpected EOF",
		`[]`:                                   "cannot unmarshal array",
		`{} {}`:                                "something follows",
		`{"erase": true}`:                      `unknown field "erase"`,
		`{"interface": {"addr": "1.2.3.4/8"}}`: `unknown field "addr"`,
		`{"interface": {"mac": "52:54:00:12:34:56"}}`:                                "interface.address is missing",
		`{"interface": {"mac": "eth0", "address": "10.9.1.100/24"}}`:                 `interface.mac "eth0"`,
		`{"interface": {"mac": "52:54:00:12:34:56:78:9a", "address": "10.0.0.1/8"}}`: "interface.mac",
		`{"interface": {"address": "10.9.1.100"}}`:                                   "10.9.1.100",
		`{"interface": {"address": "224.0.0.2/8"}}`:                                  "no address of a host",
		`{"interface": {"address": "0.0.0.0/0"}}`:                                    "no address of a host",
		`{"interface": {"address": "10.9.1.100/24", "gateway": "10.9.2.1"}}`:         "not in the network",
		`{"interface": {"address": "10.9.1.100/24", "gateway": "10.9.1.100"}}`:       "another host",
		`{"interface": {"address": "10.9.1.100/24", "gateway": "fe80::1"}}`:          "another family",
		`{"interface": {"address": "10.9.1.100/24", "dns": ["0.0.0.0"]}}`:            "interface.dns",
		`{"interface": {"address": "10.9.1.100/24", "dns": [""]}}`:                   "interface.dns",
		strings.Repeat(" ", maxOrder) + `{}`:                                         "bytes, more than",
	} {
		got, err := Decode([]byte(text))
		if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), why) {
			t.Errorf("%.80s: %v", text, err)
		}
		if err != nil && (!got.Interface.isZero() || !got.Report.isZero()) {
			t.Errorf("%.80s: a part of the order is carried out: %+v", text, got)
		}
	}
}

// TestDecodeRefusesReport expects that nothing is reported to anywhere, or without a token. The error is for a console.
func TestDecodeRefusesReport(t *testing.T) {
	t.Parallel()

	const (
		port = `{"interface": {"address": "10.9.1.100/24"}, "report": `
		good = `, "token": "0123456789abcdef"}}`
	)

	for text, why := range map[string]string{
		`{"report": {"url": "http://10.9.1.1/boot", "token": "0123456789abcdef"}}`: "needs interface",

		port + `{"token": "0123456789abcdef"}}`:               "report.url is not like",
		port + `{"url": "ftp://10.9.1.1/"` + good:             "report.url is not like",
		port + `{"url": "10.9.1.1:9480"` + good:               "report.url is not like",
		port + `{"url": "/boot"` + good:                       "report.url is not like",
		port + `{"url": "//10.9.1.1/boot"` + good:             "report.url is not like",
		port + `{"url": "http://:9480/boot"` + good:           "report.url is not like",
		port + `{"url": "http:10.9.1.1"` + good:               "report.url is not like",
		port + `{"url": "http://10.9.1.1:x/"` + good:          "report.url is not like",
		port + `{"url": "http://u:secret@10.9.1.1/"` + good:   "has a user",
		port + `{"url": "http://u:secret@10.9.1.1:x/"` + good: "report.url is not like",

		port + `{"url": "http://10.9.1.1/"}}`:                                                     "report.token",
		port + `{"url": "http://10.9.1.1/", "token": ""}}`:                                        "report.token",
		port + `{"url": "http://10.9.1.1/", "token": "secret789abcdef"}}`:                         "report.token",
		port + `{"url": "http://10.9.1.1/", "token": "secret789abcdef\n"}}`:                       "report.token",
		port + `{"url": "http://10.9.1.1/", "token": "secret789 abcdefg"}}`:                       "report.token",
		port + `{"url": "http://10.9.1.1/", "token": "` + strings.Repeat("secret", 34) + `"}}`:    "report.token",
		port + `{"url": "http://10.9.1.1/", "token": "0123456789abcdef", "proxy": "10.9.1.2:8"}}`: `field "proxy"`,
	} {
		got, err := Decode([]byte(text))
		if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), why) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", text, err)
		}
		if !got.Interface.isZero() || !got.Report.isZero() {
			t.Errorf("%s: a part of the order is carried out: %+v", text, got)
		}
	}
}

// TestDecodeInstall reads a whole order, and one with as little as there may be.
func TestDecodeInstall(t *testing.T) {
	t.Parallel()

	sum := "sha256:" + strings.Repeat("0a", 32)
	report := `{"interface": {"address": "10.9.1.100/24"},
		"report": {"url": "http://m1/", "token": "0123456789abcdef"}, `

	for text, want := range map[string]Install{
		`"install": {"image": {"url": "http://m1/i", "digest": "` + sum + `", "size": 1}}}`: {
			Image: Image{URL: "http://m1/i", Digest: sum, Size: 1},
		},
		`"install": {"image": {"url": "https://m1/i", "digest": "` + sum + `", "size": 7, "compression": "zstd",
			"virtual": 70}, "root_device": {"size": ">= 100", "rotational": false},
			"seed": {"meta_data": "m", "user_data": "u", "network_config": "n"}}}`: {
			Image:      Image{URL: "https://m1/i", Digest: sum, Size: 7, Compression: "zstd", Virtual: 70},
			RootDevice: map[string]any{"size": ">= 100", "rotational": false},
			Seed:       Seed{MetaData: "m", UserData: "u", NetworkConfig: "n"},
		},
	} {
		got, err := Decode([]byte(report + text))
		if err != nil || !reflect.DeepEqual(got.Install, &want) {
			t.Errorf("%s: %+v, %v", text, got.Install, err)
		}
	}
}

// TestDecodeRefusesInstall expects that no disk is touched for an order with a mistake.
func TestDecodeRefusesInstall(t *testing.T) {
	t.Parallel()

	const (
		port   = `{"interface": {"address": "10.9.1.100/24"}, `
		report = `"report": {"url": "http://m1/", "token": "0123456789abcdef"}, `
		image  = port + report + `"install": {"image": {`
		url    = `"url": "http://m1/i", `
		sum    = `"digest": "sha256:` + "0000000000000000000000000000000000000000000000000000000000000000" + `", `
	)

	for text, why := range map[string]string{
		port + `"install": {"image": {` + url + sum + `"size": 1}}}`: "install needs report",

		port + report + `"install": {}}`:                                "install.image.url",
		image + `"url": "ftp://m1/i", ` + sum + `"size": 1}}}`:          "install.image.url",
		image + `"url": "http://u:secret@m1/", ` + sum + `"size": 1}}}`: "has a user",
		image + url + `"size": 1}}}`:                                    "digest",
		image + url + `"digest": "sha512:00", "size": 1}}}`:             "digest",
		image + url + sum + `"size": 0}}}`:                              "impossible size",
		image + url + sum + `"size": 70368744177665}}}`:                 "impossible size",
		image + url + sum + `"size": 1, "virtual": -1}}}`:               "impossible size",
		image + url + sum + `"size": 1, "compression": "br"}}}`:         `"br" is none of`,
		image + url + sum + `"size": 1}, "erase": true}}`:               `field "erase"`,

		image + url + sum + `"size": 1}, "root_device": {"disk": "sda"}}}`: "no hint",
		image + url + sum + `"size": 1}, "seed": {"user_data": "x"}}}`:     "meta_data",
	} {
		got, err := Decode([]byte(text))
		if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), why) ||
			strings.Contains(err.Error(), "secret") || got.Install != nil {
			t.Errorf("%s: %+v, %v", text, got.Install, err)
		}
	}
}

// FuzzDecode expects that an order which is accepted is read back as it is written.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"interface": {"mac": "52:54:00:12:34:56", "address": "10.9.1.100/24", "dns": []}}`))
	f.Add([]byte(`{"interface": {"address": "10.9.1.100/24", "gateway": "10.9.1.1"}}`))
	f.Add([]byte(`{"interface": {"address": "fd00::1%eth0/64"}}`))
	f.Add([]byte(`{"interface": {"address": "10.9.1.100/24"},
		"report": {"url": "http://10.9.1.1:9480/boot/report", "token": "0123456789-_abCD"}}`))
	f.Add(
		[]byte(
			`{"interface": {"address": "10.9.1.100/24"}, "report": {"url": "http://m1/", "token": "0123456789abcdef"},
		"install": {"image": {"url": "http://m1/i", "digest": "sha256:` + strings.Repeat("0a", 32) + `", "size": 9,
		"compression": "xz", "virtual": 90}, "root_device": {"size": 9e9}, "seed": {"meta_data": "{}"}}}`,
		),
	)

	f.Fuzz(func(t *testing.T, b []byte) {
		order, err := Decode(b)
		if err != nil {
			return
		}

		written, err := json.Marshal(order)
		errtest.None(t, err)
		again, err := Decode(written)

		if len(order.Interface.DNS) == 0 {
			order.Interface.DNS = nil
		}
		if order.Install != nil && len(order.Install.RootDevice) == 0 {
			order.Install.RootDevice = nil
		}
		if err != nil || !reflect.DeepEqual(order, again) {
			t.Errorf("%s: %+v, then %+v (%v)", b, order, again, err)
		}
	})
}
