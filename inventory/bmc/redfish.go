// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/schemas"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
)

// Bounds on what a Redfish service may send.
const (
	answerLimit    = 4 << 20  // bytes of an answer; a system with all its fields has some kilobytes
	headerLimit    = 64 << 10 // bytes of its header
	answerTimeout  = 10 * time.Second
	redirectsLimit = 3
)

// redfish is a session with a Redfish service.
type redfish struct {
	bmc    machine.BMC
	client *gofish.APIClient
	path   string // of the system
}

// connectRedfish opens a session, and finds the system.
func connectRedfish(ctx context.Context, b machine.BMC, g *gate) (session, error) {
	scheme := "https"
	if b.Plain {
		scheme = "http"
	}
	base := url.URL{Scheme: scheme, Host: hostPort(b)}

	c, err := gofish.ConnectContext(ctx, gofish.ClientConfig{
		Endpoint: base.String(), Username: b.User, Password: b.Password, ReuseConnections: true,
		HTTPClient: &http.Client{
			Timeout: answerTimeout,
			Transport: &bounded{base: &base, RoundTripper: &http.Transport{
				TLSClientConfig: &tls.Config{
					MinVersion: tls.VersionTLS12,
					//nolint:gosec // BMCs have certificates of their own making; the site says which ones to verify
					InsecureSkipVerify: !b.Verify,
				},
				MaxResponseHeaderBytes: headerLimit, MaxIdleConnsPerHost: 1,
			}},
			CheckRedirect: func(_ *http.Request, via []*http.Request) error {
				if len(via) >= redirectsLimit {
					return errors.New("too many redirects")
				}
				return nil
			},
		},
	})
	s := &redfish{bmc: b, client: c, path: b.System}

	if err != nil {
		return nil, s.connectError(err)
	}

	if s.path == "" {
		s.path = g.system
	}

	if s.path == "" {
		if s.path, err = s.only(); err != nil {
			s.close(ctx)
			return nil, err
		}
		g.system = s.path
	}

	return s, nil
}

// connectError translates the error of a login.
func (s *redfish) connectError(err error) error {
	// A service answers a wrong password with 401, and some with 400 or 403. What comes before needs no login.
	answer := &schemas.Error{}
	if errors.As(err, &answer) {
		switch answer.HTTPReturnedStatusCode {
		case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
			return refused(s.bmc, "wrong user or password")
		}
	}

	return s.error(err)
}

// error translates an error of the library.
func (s *redfish) error(err error) error {
	var (
		answer = &schemas.Error{}
		ours   *inventory.Error
		syntax *json.SyntaxError
		shape  *json.UnmarshalTypeError
		tooBig *http.MaxBytesError
		failed *url.Error // there was no answer
	)

	switch {
	case err == nil:
		return nil
	case errors.As(err, &ours):
		return err
	case errors.As(err, &syntax), errors.As(err, &shape), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return garbage(s.bmc, err.Error())
	case errors.As(err, &tooBig):
		return garbage(s.bmc, fmt.Sprintf("an answer has more than %d bytes", tooBig.Limit))
	case errors.As(err, &failed):
		return unreachable(s.bmc, err)
	case !errors.As(err, &answer):
		return garbage(s.bmc, err.Error())
	}

	switch code := answer.HTTPReturnedStatusCode; code {
	case http.StatusUnauthorized:
		return inventory.Errorf(inventory.KindUnavailable, "the BMC at %s has ended the session", hostPort(s.bmc)).
			Do("try again; other programs may use up its sessions")
	case http.StatusForbidden:
		return unprivileged(s.bmc, "Operator")
	case http.StatusNotFound:
		return garbage(s.bmc, "it knows no "+http.StatusText(code)+" path of Redfish")
	default:
		return unable(s.bmc, fmt.Sprintf("%d %s: %s", code, http.StatusText(code), message(answer)))
	}
}

// collectionError translates the error of a collection: that of one of its members.
func (s *redfish) collectionError(err error) error {
	var failed *schemas.CollectionError
	if errors.As(err, &failed) {
		for _, one := range failed.Failures {
			err = one
		}
	}

	return s.error(err)
}

// message returns what a service says about an error.
func message(e *schemas.Error) string {
	for _, info := range e.ExtendedInfos {
		if info.Message != "" {
			return info.Message
		}
	}

	return e.Message
}

// only returns the path of the only system of the service.
func (s *redfish) only() (string, error) {
	systems, err := s.client.Service.Systems()
	if err != nil {
		return "", s.collectionError(err)
	}

	paths := make([]string, 0, len(systems))
	for _, system := range systems {
		paths = append(paths, system.ODataID)
	}
	slices.Sort(paths)

	switch len(paths) {
	case 1:
		return paths[0], nil
	case 0:
		return "", inventory.Errorf(inventory.KindNotFound, "the BMC at %s has no system", hostPort(s.bmc)).
			Do("check its address")
	}

	return "", inventory.Errorf(inventory.KindInvalid, "the BMC at %s has %d systems: %s",
		hostPort(s.bmc), len(paths), quote(strings.Join(paths, ", "))).
		Do("register the machine with the path of its system")
}

// system reads the system.
func (s *redfish) system() (*schemas.ComputerSystem, error) {
	system, err := schemas.GetComputerSystem(s.client, s.path)

	answer := &schemas.Error{}
	if errors.As(err, &answer) && answer.HTTPReturnedStatusCode == http.StatusNotFound {
		return nil, s.noSystem()
	}

	return system, s.error(err)
}

// noSystem is the error of a service without the system.
func (s *redfish) noSystem() error {
	return inventory.Errorf(inventory.KindNotFound, "the BMC at %s has no system %s", hostPort(s.bmc), quote(s.path)).
		Do("correct the path of the system; without one, the only system of the BMC is taken")
}

func (s *redfish) power(context.Context) (Power, error) {
	system, err := s.system()
	if err != nil {
		return "", err
	}

	switch system.PowerState {
	case schemas.OnPowerState, schemas.PausedPowerState:
		return On, nil
	case schemas.OffPowerState:
		return Off, nil
	case schemas.PoweringOnPowerState, schemas.PoweringOffPowerState:
		return Changing, nil
	}

	return "", garbage(s.bmc, fmt.Sprintf("the power state %q", system.PowerState))
}

// resets are the kinds of reset that carry an action out, the best one first.
var resets = map[Action][]schemas.ResetType{
	TurnOn:  {schemas.OnResetType, schemas.ForceOnResetType},
	TurnOff: {schemas.ForceOffResetType},
	Cycle:   {schemas.PowerCycleResetType, schemas.ForceRestartResetType},
	Reset:   {schemas.ForceRestartResetType, schemas.PowerCycleResetType},
	Soft:    {schemas.GracefulShutdownResetType, schemas.PushPowerButtonResetType},
}

func (s *redfish) act(_ context.Context, a Action) error {
	system, err := s.system()
	if err != nil {
		return err
	}

	allowed, err := system.GetSupportedResetTypes()
	if err != nil {
		return s.error(err)
	}

	kind := resets[a][0]
	if len(allowed) > 0 {
		i := slices.IndexFunc(resets[a], func(t schemas.ResetType) bool { return slices.Contains(allowed, t) })
		if i < 0 {
			return unable(s.bmc, fmt.Sprintf("it offers %v only", allowed))
		}
		kind = resets[a][i]
	}

	// ComputerSystem.Reset of gofish v0.21.0 posts to the target of another action.
	var actions struct {
		Actions struct {
			Reset struct {
				Target string `json:"target"`
			} `json:"#ComputerSystem.Reset"`
		}
	}

	if err := json.Unmarshal(system.RawData, &actions); err != nil || actions.Actions.Reset.Target == "" {
		return unable(s.bmc, "its system has no action ComputerSystem.Reset")
	}

	return s.send(s.client.Post(actions.Actions.Reset.Target, map[string]any{"ResetType": kind}))
}

var targets = map[Device]schemas.BootSource{
	Default: schemas.NoneBootSource,
	PXE:     schemas.PxeBootSource,
	Disk:    schemas.HddBootSource,
	CDROM:   schemas.CdBootSource,
	Setup:   schemas.BiosSetupBootSource,
}

func (s *redfish) boot(_ context.Context, b Boot) error {
	system, err := s.system()
	if err != nil {
		return err
	}

	// Only what is meant: ComputerSystem.SetBoot of gofish would send every field, also those that have no value.
	boot := map[string]any{
		"BootSourceOverrideTarget":  targets[b.Device],
		"BootSourceOverrideEnabled": schemas.OnceBootSourceOverrideEnabled,
	}

	switch {
	case b.Device == Default:
		boot["BootSourceOverrideEnabled"] = schemas.DisabledBootSourceOverrideEnabled
	case b.Lasting:
		boot["BootSourceOverrideEnabled"] = schemas.ContinuousBootSourceOverrideEnabled
	}

	switch b.Mode {
	case BIOS:
		boot["BootSourceOverrideMode"] = schemas.LegacyBootSourceOverrideMode
	case UEFI:
		boot["BootSourceOverrideMode"] = schemas.UEFIBootSourceOverrideMode
	}

	return s.patch(s.path, system.RawData, map[string]any{"Boot": boot})
}

// patch changes fields of a resource, of which raw is the newest form.
func (s *redfish) patch(path string, raw []byte, fields map[string]any) error {
	headers := map[string]string{}

	var tagged struct {
		ETag string `json:"@odata.etag"`
	}
	if err := json.Unmarshal(raw, &tagged); err == nil && tagged.ETag != "" {
		headers["If-Match"] = tagged.ETag
	}

	return s.send(s.client.PatchWithHeaders(path, fields, headers))
}

// setPassword changes the password of the user of the session.
func (s *redfish) setPassword(_ context.Context, password string) error {
	service, err := s.client.Service.AccountService()

	switch {
	case err != nil:
		return asAdministrator(s.bmc, s.error(err))
	case service == nil:
		return unable(s.bmc, "it has no service for accounts")
	}

	// Some of many accounts may be out of reach.
	accounts, err := service.Accounts()

	i := slices.IndexFunc(accounts, func(a *schemas.ManagerAccount) bool { return a.UserName == s.bmc.User })
	switch {
	case i >= 0:
	case err != nil:
		return asAdministrator(s.bmc, s.collectionError(err))
	default:
		return unable(s.bmc, "it does not list "+name(s.bmc.User))
	}

	return asAdministrator(s.bmc,
		s.patch(accounts[i].ODataID, accounts[i].RawData, map[string]any{"Password": password}))
}

// send ends a request whose answer does not matter.
func (s *redfish) send(r *http.Response, err error) error {
	schemas.DeferredCleanupHTTPResponse(r)
	return s.error(err)
}

// close ends the session. A service has few of them.
func (s *redfish) close(context.Context) { s.client.Logout() }

// bounded sends requests to one service only, whatever links, redirects or paths that service gave, and bounds answers.
type bounded struct {
	http.RoundTripper

	base *url.URL
}

func (t *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != t.base.Scheme || r.URL.Host != t.base.Host || r.URL.User != nil {
		return nil, fmt.Errorf("the service refers to another one: %s", quote(r.URL.Redacted()))
	}

	response, err := t.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, answerLimit)
	}

	return response, err
}
