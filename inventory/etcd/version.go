// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-semver/semver"
	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/api/v3/version"

	"github.com/contiv/cluster/inventory"
)

// Version is the version of the embedded etcd.
var Version = version.Version

const (
	minVersion  = "3.4.23" // the oldest version that the tests run against
	safeVersion = "3.6.14" // the oldest version without known holes

	versionInterval = time.Minute     // between two checks of the members' versions
	statusTimeout   = 3 * time.Second // for one member to report its version
)

// serverVersion is the result of a version check.
type serverVersion struct {
	version string // the lowest among the members that responded
	problem error  // the version is too old to be used
	warning string // the version is usable but not recommended
}

// checkVersion rates a server version. At most one result is set.
func checkVersion(text string) (warning string, problem error) {
	v, err := semver.NewVersion(text)

	switch {
	case err != nil:
		return "", inventory.Errorf(inventory.KindRefused, "the etcd server reports the invalid version %q", text).
			Do("use an etcd server of version %s or later", minVersion)
	case v.LessThan(*semver.New(minVersion)):
		return "", inventory.Errorf(inventory.KindRefused,
			"the etcd server has version %s, which is too old: clusterm needs %s or later", v, minVersion).
			Do("upgrade every member of it, best to %s or later", safeVersion)
	case v.LessThan(*semver.New(safeVersion)):
		return fmt.Sprintf("the etcd server has version %s, which has known holes; upgrade every member to %s or later",
			v, safeVersion), nil
	}

	return "", nil
}

// lowestVersion returns the lowest of the versions. Invalid ones sort first.
func lowestVersion(versions []string) string {
	return slices.MinFunc(versions, func(a, b string) int {
		v, aErr := semver.NewVersion(a)
		w, bErr := semver.NewVersion(b)

		switch {
		case aErr != nil && bErr != nil:
			return strings.Compare(a, b)
		case aErr != nil:
			return -1
		case bErr != nil:
			return 1
		}

		return v.Compare(*w)
	})
}

// fetchVersion asks every member for its version and rates the lowest. It skips
// members that do not respond, and fails if none does.
func (c *Client) fetchVersion(ctx context.Context) (serverVersion, error) {
	ctx, cancel := Bounded(ctx)
	defer cancel()

	endpoints, cluster := c.memberEndpoints(ctx)

	var (
		mu       sync.Mutex
		versions []string
		failure  error
		requests sync.WaitGroup
	)
	for _, endpoint := range endpoints {
		requests.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, statusTimeout)
			defer cancel()

			status, err := c.Status(ctx, endpoint)

			mu.Lock()
			defer mu.Unlock()

			switch {
			case err != nil:
				failure = err
			case cluster == 0 || status.Header.ClusterId == cluster:
				// An advertised address may belong to another cluster when seen from this host.
				versions = append(versions, status.Version)
			}
		})
	}

	requests.Wait()

	if len(versions) == 0 {
		return serverVersion{}, Error(cmp.Or(failure, errors.New("no member reports its version")))
	}

	v := serverVersion{version: lowestVersion(versions)}
	v.warning, v.problem = checkVersion(v.version)

	return v, nil
}

// memberEndpoints returns the configured endpoints, the advertised endpoints of all
// members and the id of the cluster. If the members cannot be listed, it
// returns the configured endpoints and 0.
func (c *Client) memberEndpoints(ctx context.Context) (endpoints []string, cluster uint64) {
	endpoints = slices.Clone(c.Endpoints())

	members, err := c.MemberList(ctx)
	if err != nil {
		return endpoints, 0
	}

	// Members may advertise endpoints of the other scheme, for other clients.
	secure := strings.HasPrefix(endpoints[0], "https:")
	for _, m := range members.Members {
		for _, u := range m.ClientURLs {
			if strings.HasPrefix(u, "https:") == secure && !slices.Contains(endpoints, u) {
				endpoints = append(endpoints, u)
			}
		}
	}

	return endpoints, members.Header.ClusterId
}

// watchVersion refreshes the version until ctx ends: members join, leave and are
// replaced.
func (c *Client) watchVersion(ctx context.Context, log logrus.FieldLogger) {
	tick := time.NewTicker(versionInterval)
	defer tick.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}

		c.refreshVersion(ctx, log)
	}
}

// refreshVersion fetches the version once and logs a change.
func (c *Client) refreshVersion(ctx context.Context, log logrus.FieldLogger) {
	v, err := c.fetchVersion(ctx)
	if err != nil {
		return // every use of the store reports the outage
	}

	c.mu.Lock()
	changed := v.version != c.server.version
	c.server = v
	c.mu.Unlock()

	switch {
	case !changed:
	case v.problem != nil:
		log.Error(v.problem)
	case v.warning != "":
		log.Warn(v.warning)
	default:
		log.WithField("version", v.version).Info("the version of the etcd server has changed")
	}
}

// Server returns the lowest version among the members, a warning about it or "",
// and an error if the version is too old to be used.
func (c *Client) Server() (version, warning string, problem error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server.version, c.server.warning, c.server.problem
}
