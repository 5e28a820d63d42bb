// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// uploadStall is how long an upload may make no progress. At its begin the manager reads what has come before, and at
// its end it writes all to its disk.
const uploadStall = 10 * time.Minute

// verifyTime bounds the check of an image, which reads all of it.
const verifyTime = time.Hour

// Images returns the images, or a page of them, by name.
func (c *Client) Images(ctx context.Context, page ...Page) (api.List[api.Image], error) {
	return listed[api.Image](ctx, c, api.PathImages, page)
}

// Image returns an image, with what has come of its content.
func (c *Client) Image(ctx context.Context, name string) (api.Image, error) {
	return get[api.Image](ctx, c, api.PathImage, name)
}

// CreateImage adds an image, whose content follows with SendImage.
func (c *Client) CreateImage(ctx context.Context, r api.ImageRequest) (api.Image, error) {
	return post[api.Image](ctx, c, api.PathImages, r)
}

// VerifyImage checks the content of an image on the instance that answers. It may take as long as that reads it.
func (c *Client) VerifyImage(ctx context.Context, name string) (api.ImageCheck, error) {
	return ask[api.ImageCheck](ctx, c, call{
		method: http.MethodPost, path: api.PathImageCheck, params: []string{name}, extra: verifyTime,
	})
}

// DeleteImage removes an image.
func (c *Client) DeleteImage(ctx context.Context, name string) (api.Changed, error) {
	return remove(ctx, c, api.PathImage, name)
}

// SendImage sends the rest of a file of an image, from the offset on. It goes to the instance that answered last, and
// to no other; after KindUnavailable, Image tells where to go on.
func (c *Client) SendImage(
	ctx context.Context, name, role string, offset int64, content io.Reader,
) (out api.Image, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	stalled := time.AfterFunc(uploadStall, func() { cancel(context.DeadlineExceeded) })
	defer stalled.Stop()

	e := c.route.order()[0]
	source := &moving{Reader: content, moved: func() { stalled.Reset(uploadStall) }}

	res, err := c.send(ctx, e, call{
		method: http.MethodPut, path: api.PathImageFile, params: []string{name, role},
		query: url.Values{"offset": {strconv.FormatInt(offset, 10)}}, content: source,
	})
	c.route.note(e, err)

	if err != nil {
		// What cannot be read here is no failure of the manager.
		if own := source.failure(); own != nil && inventory.KindOf(err) == inventory.KindUnavailable {
			return out, own
		}
		return out, err
	}
	defer drain(res.Body)

	body, err := whole(res)
	if err != nil {
		return out, e.explain(ctx, err)
	}

	return out, answer{res, body}.decode(e, call{}, &out)
}

// ImageContent opens the content of a file of an image, from the offset in bytes on. The caller has to close it.
func (c *Client) ImageContent(ctx context.Context, name, role string, offset int64) (io.ReadCloser, error) {
	res, e, err := c.open(ctx, call{
		method: http.MethodGet, path: api.PathImageFile, params: []string{name, role}, from: offset,
	})
	if err != nil {
		return nil, err
	}

	if want := http.StatusPartialContent; !isType(res, api.TypeBinary) || offset > 0 && res.StatusCode != want {
		return nil, e.notStream(res)
	}

	return res.Body, nil
}

// moving is a body that notes each read of it, and its error.
type moving struct {
	io.Reader

	moved func()
	mu    sync.Mutex
	err   error
}

// Read implements io.Reader.
func (m *moving) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	m.moved()

	if err != nil && !errors.Is(err, io.EOF) {
		m.mu.Lock()
		defer m.mu.Unlock()

		m.err = err
	}

	return n, err
}

func (m *moving) failure() error {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.err
}
