// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/contiv/cluster/inventory"
)

// Schema is the version of the stored data that this build reads and writes.
const Schema = "1"

// requestTimeout bounds every single request to the store.
const requestTimeout = 10 * time.Second

// Client is a connection to etcd, and the prefix below which everything is kept.
type Client struct {
	*clientv3.Client
	Prefix string // starts with a slash, ends without

	mu     sync.Mutex
	server server
	stop   context.CancelFunc
	tasks  sync.WaitGroup
}

// Dial connects to the etcd inside, waits until it answers, and checks the
// schema of what it holds. Data of a newer version is refused.
func Dial(ctx context.Context, prefix string, endpoints ...string) (*Client, error) {
	c, err := connect(ctx, clientv3.Config{Endpoints: endpoints}, prefix, nil)
	if err == nil {
		c.server.version = Version
	}
	return c, err
}

// Close ends the connection.
func (c *Client) Close() error {
	if c.stop != nil {
		c.stop()
	}
	c.tasks.Wait()
	return c.Client.Close()
}

// connect tries until the store answers, or says something that will not mend
// itself. The first failure is logged, where there is a log.
func connect(ctx context.Context, config clientv3.Config, prefix string, log logrus.FieldLogger) (*Client, error) {
	config.Logger = zap.NewNop()
	config.DialTimeout = 5 * time.Second // for the first token, where there are users
	config.DialKeepAliveTime, config.DialKeepAliveTimeout = 10*time.Second, 5*time.Second
	config.MaxCallSendMsgSize, config.MaxCallRecvMsgSize = maxRequestSize, 1<<30
	// A server that has gone is tried again soon: mostly it is near.
	config.DialOptions = []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
		MinConnectTimeout: 5 * time.Second,
	})}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var client *Client
	for {
		err := func() error {
			if client == nil {
				c, err := clientv3.New(config)
				if err != nil {
					return Error(err)
				}
				client = &Client{Client: c, Prefix: prefix}
			}
			return client.schema(ctx)
		}()
		if err == nil {
			return client, nil
		}
		if inventory.KindOf(err) != inventory.KindUnavailable || hopeless(err) || ctx.Err() != nil {
			if client != nil {
				_ = client.Close()
			}
			return nil, err
		}
		if log != nil {
			log.WithError(err).Warnf("etcd does not answer yet; waiting for up to %s", startTimeout)
			log = nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// hopeless tells whether waiting for the store makes no sense: it answers, and
// does not let us in.
func hopeless(err error) bool {
	for _, e := range []error{rpctypes.ErrAuthFailed, rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty} {
		if errors.Is(err, e) {
			return true
		}
	}
	return strings.Contains(err.Error(), "x509: ") || strings.Contains(err.Error(), "tls: ")
}

func (c *Client) schema(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	key := c.Prefix + "/schema"
	resp, err := c.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, Schema)).Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return Error(err)
	}
	if resp.Succeeded {
		return nil
	}
	if got := string(resp.Responses[0].GetResponseRange().Kvs[0].Value); got != Schema {
		return inventory.Errorf(inventory.KindRefused, "the stored data has version %s, this clusterm knows version %s", got, Schema).
			Do("start the clusterm that wrote it, or a newer one")
	}
	return nil
}

// Bounded is a context for one request to the store.
func Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, requestTimeout)
}

// Error gives an error of the client its kind.
func Error(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	switch {
	case errors.Is(err, rpctypes.ErrCompacted), errors.Is(err, rpctypes.ErrFutureRev):
		return inventory.Errorf(inventory.KindConflict, "%w", err)
	case errors.Is(err, rpctypes.ErrRequestTooLarge):
		return inventory.Errorf(inventory.KindTooLarge, "the record is larger than the store takes: %w", err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return inventory.Errorf(inventory.KindUnavailable, "the store has no space left: %w", err).
			Do("lower the retention of jobs, compact and defragment etcd, then disarm its alarm")
	}
	for _, refused := range []struct {
		err    error
		remedy string
	}{
		{rpctypes.ErrAuthFailed, "check etcd.user and what is in etcd.password_file"},
		{rpctypes.ErrUserEmpty, "it wants to know who asks: configure etcd.user and etcd.password_file"},
		{rpctypes.ErrPermissionDenied, "grant the user of clusterm a role that may read and write below etcd.prefix"},
	} {
		if errors.Is(err, refused.err) {
			return inventory.Errorf(inventory.KindUnavailable, "the store refuses clusterm: %w", err).Do("%s", refused.remedy)
		}
	}
	code := status.Code(err)
	if code == codes.InvalidArgument && strings.Contains(err.Error(), "larger than max") || code == codes.ResourceExhausted {
		return inventory.Errorf(inventory.KindTooLarge, "the record is larger than the store takes: %w", err)
	}
	return inventory.Errorf(inventory.KindUnavailable, "the store does not answer: %w", err).Do("see the log of clusterm and the state of etcd")
}
