// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
)

// Hello is what a BMC says of itself to anybody.
type Hello struct {
	Product string // vendor and product (Redfish); empty: it does not say
	UUID    string // of the service (Redfish), lower case; empty: it does not say
}

// The times of a question without a login. A datagram may be lost: it is sent twice.
const (
	helloTimeout = 2 * time.Second
	helloLimit   = 64 << 10 // bytes of an answer
)

// Greet asks what answers at the address and port of b for its protocol, without a login, within seconds. It needs no
// user: nobody is locked out.
func Greet(ctx context.Context, b machine.BMC) (Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()

	if b.Driver.SpeaksRedfish() {
		return greetRedfish(ctx, b)
	}

	return Hello{}, greetIPMI(ctx, b)
}

// greetIPMI sends the presence ping of RMCP.
func greetIPMI(ctx context.Context, b machine.BMC) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", hostPort(b))
	if err != nil {
		return unreachable(b, err)
	}
	defer conn.Close()

	c, err := client.NewClient(b.Address, b.Port, "", "")
	if err != nil {
		return inventory.Errorf(inventory.KindInvalid, "the address of the BMC at %s: %s", hostPort(b), err)
	}

	guarded := &datagrams{Conn: conn}
	c.WithUDPProxy(guarded).WithTimeout(helloTimeout / 2).WithRetry(1)
	guarded.parse = func(msg []byte) { _ = c.ParseRmcpResponse(ctx, msg, types.CommandNone, ignored{}) }

	s := &ipmi{bmc: b, client: c, conn: guarded}

	return s.call(ctx, func(ctx context.Context) error {
		pong, err := c.RmcpPing(ctx)
		if err == nil && !pong.IPMISupported {
			return garbage(b, "it answers a ping, and says that it has no IPMI")
		}
		return err
	})
}

// greetRedfish reads the root of the service, which is open to all.
func greetRedfish(ctx context.Context, b machine.BMC) (Hello, error) {
	scheme := "https"
	if b.Plain {
		scheme = "http"
	}
	root := url.URL{Scheme: scheme, Host: hostPort(b), Path: "/redfish/v1/"}

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, root.String(), http.NoBody)
	if err != nil {
		return Hello{}, unreachable(b, err)
	}

	transport := &http.Transport{
		//nolint:gosec // nothing secret is sent, and what is answered is no more than a hint
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true},
		MaxResponseHeaderBytes: headerLimit, DisableKeepAlives: true,
	}

	answer, err := (&http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}).Do(request)
	if err != nil {
		return Hello{}, unreachable(b, err)
	}
	defer answer.Body.Close()

	var service struct {
		Version string `json:"RedfishVersion"` //nolint:tagliatelle // DMTF's name
		Vendor  string `json:"Vendor"`         //nolint:tagliatelle // DMTF's name
		Product string `json:"Product"`        //nolint:tagliatelle // DMTF's name
		UUID    string `json:"UUID"`           //nolint:tagliatelle // DMTF's name
	}

	err = json.NewDecoder(io.LimitReader(answer.Body, helloLimit)).Decode(&service)

	switch {
	case answer.StatusCode != http.StatusOK:
		return Hello{}, garbage(b, fmt.Sprintf("its root answers with status %d", answer.StatusCode))
	case err != nil:
		return Hello{}, garbage(b, "its root is no JSON")
	case service.Version == "":
		return Hello{}, garbage(b, "its root names no version of Redfish")
	}

	return Hello{
		Product: quote(strings.TrimSpace(service.Vendor + " " + service.Product)),
		UUID:    strings.ToLower(quote(service.UUID)),
	}, nil
}
