// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/image"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

// Images adds, checks and removes images.
type Images interface {
	Create(ctx context.Context, c access.Caller, r api.ImageRequest) (api.Image, error)
	// Verify reads the content of an image on this instance. It may take minutes.
	Verify(ctx context.Context, c access.Caller, name string) (api.ImageCheck, error)
	Delete(ctx context.Context, c access.Caller, name string) error
}

// ImageContents has the content of images on this instance.
type ImageContents interface {
	// Received returns how many bytes of some content are here.
	Received(digest string) int64
	// Upload appends to the content of a file. It blocks while content comes.
	Upload(ctx context.Context, c access.Caller, name, role string, offset int64, content io.Reader) (api.Image, error)
	// Open opens the content of a file. The caller has to close it.
	Open(r record.Reader, name, role string) (*os.File, api.ImageFile, error)
}

func (s *Server) imageRoutes() []rest.Route {
	name := openapi.Param{
		Name: "name", Help: "The name of the image.", Example: "debian-13", Missing: "The image does not exist.",
	}
	role := openapi.Param{
		Name: "role", Help: "The role of the file.", Values: image.Roles, Example: image.RoleImage,
		Missing: "The image does not exist, or has no such file.",
	}

	return []rest.Route{
		show(s, s.getImage, rest.Route{Path: api.PathImage, Allow: access.Readers, Doc: &openapi.Doc{
			ID: "getImage", Tag: aboutImages, Summary: "Show an image",
			Text: "Returns an image, which instances have its content, and in `received` how many bytes of each file " +
				"have come to the instance that answers.",
			Path: []openapi.Param{name}, Success: "The image.",
		}}),
		act(s, s.postImage, rest.Route{Path: api.PathImages, Allow: access.Operators, Doc: &openapi.Doc{
			ID: "createImage", Tag: aboutImages, Summary: "Add an image",
			Text: "Adds an image with the digests of its files. Their content follows, file by file, with PUT; what " +
				"some instance has already need not be sent. If there is the same image, nothing changes, and the " +
				"answer is that one; another one under the name is refused.",
			Success: "The image.", Revision: true,
			Fails: openapi.Fails{
				400: "It describes no image.", 409: "Another image has the name, or there are 200 images.",
			},
		}}),
		act(s, s.deleteImage, rest.Route{
			Path: api.PathImage, Method: http.MethodDelete, Allow: access.Operators, Doc: &openapi.Doc{
				ID: "deleteImage", Tag: aboutImages, Summary: "Remove an image",
				Text: "Removes an image, unless something needs it. Content that no image needs is removed after an " +
					"hour.",
				Path: []openapi.Param{name}, Success: "The image is removed.", Revision: true,
				Fails: openapi.Fails{409: "Something needs the image: the detail names it."},
			},
		}),
		act(s, s.verifyImage, rest.Route{Path: api.PathImageCheck, Allow: access.Operators, Doc: &openapi.Doc{
			ID: "verifyImage", Tag: aboutImages, Summary: "Check the content of an image",
			Text: "Reads the content of an image on the instance that answers, and compares it with the digests. " +
				"What is damaged is removed from that instance, so that it can be sent again. The answer comes once " +
				"all is read, which takes minutes for a large image.",
			Path: []openapi.Param{name}, Success: "The result for each file.",
		}}),
		{
			Method: http.MethodPut, Path: api.PathImageFile, Allow: access.Operators, Serve: s.putImageFile,
			Uploads: true, Streams: true,
			Query: []openapi.Param{{
				Name: "offset", Type: openapi.Number, Default: "0",
				Help: "Where the body begins in the content, in bytes: the `received` of the file.",
			}},
			Doc: &openapi.Doc{
				ID: "putImageFile", Tag: aboutImages, Summary: "Send the content of a file",
				Text: "Appends the body to what has come to the instance that answers. It may be larger than " +
					"`max_body`: the size of the file bounds it. What has come before a broken connection stays, " +
					"and a later request goes on after it. A connection on which 256 KiB do not arrive within 30 " +
					"seconds is ended. Once all has come and has the digest, the image is complete; content with " +
					"another digest is dropped. Content that is complete on the instance is not read.",
				Path: []openapi.Param{name, role}, Body: "", BodyType: api.TypeBinary, Answer: api.Image{},
				Success: "All of the content has come.", Revision: true,
				Fails: openapi.Fails{
					400: "The content broke off, or is not what the digest or the kind of the image says.",
					409: "There is no room for the content, or another request sends it now.",
					412: "Another number of bytes has come: the detail names it.",
				},
			},
		},
		{
			Method: http.MethodGet, Path: api.PathImageFile, Allow: access.Operators, Serve: s.reading(s.getImageFile),
			Streams: true,
			Doc: &openapi.Doc{
				ID:      "getImageFile",
				Tag:     aboutImages,
				Summary: "Read the content of a file",
				Text: "Returns the content, or the range of a `Range` header with the status 206. Its ETag is the " +
					"digest. Only an instance that has the content answers with it; another one names one that has it.",
				Path: []openapi.Param{
					name,
					role,
				},
				Answer:  "",
				Type:    api.TypeBinary,
				Success: "The content.",
				Tagged:  true,
				Ranges:  true,
				Fails: openapi.Fails{
					409: "The content has not come yet.", 503: "Another instance has the content: the detail names it.",
				},
			},
		},
	}
}

func (s *Server) getImage(r *http.Request, v *state.Scoped) (api.Image, int64, error) {
	found := record.Get(v, &image.Kind, rest.Param(r, "name"))
	if found == nil {
		return api.Image{}, 0, inventory.
			Errorf(inventory.KindNotFound, "there is no image %q", inventory.Shorten(rest.Param(r, "name"), 100)).
			Do("GET %s lists them", api.PathImages)
	}

	return s.received(*found), 0, nil
}

// received returns an image with what has come of its files.
func (s *Server) received(i api.Image) api.Image {
	i.Files = append([]api.ImageFile{}, i.Files...)
	for n, f := range i.Files {
		i.Files[n].Received = s.Contents.Received(f.Digest)
	}

	return i
}

func (s *Server) postImage(r *http.Request, c access.Caller, body api.ImageRequest) (api.Image, error) {
	rest.Note(r, "image", body.Name)

	made, err := s.Images.Create(r.Context(), c, body)
	if err != nil {
		return api.Image{}, err
	}

	return s.received(made), nil
}

func (s *Server) deleteImage(r *http.Request, c access.Caller, _ openapi.Empty) (api.Changed, error) {
	name := rest.Param(r, "name")
	rest.Note(r, "image", name)

	if err := s.Images.Delete(r.Context(), c, name); err != nil {
		return api.Changed{}, err
	}

	return api.Changed{Revision: s.view(r.Context()).Revision}, nil
}

func (s *Server) verifyImage(r *http.Request, c access.Caller, _ openapi.Empty) (api.ImageCheck, error) {
	name := rest.Param(r, "name")
	rest.Note(r, "image", name)

	return s.Images.Verify(r.Context(), c, name)
}

func (s *Server) putImageFile(w http.ResponseWriter, r *http.Request) error {
	if err := rest.CheckType(r, api.TypeBinary); err != nil {
		return err
	}

	name, role := rest.Param(r, "name"), rest.Param(r, "role")
	rest.Note(r, "image", name)

	// A stop of the manager does not wait for the rest: the client goes on after what has come.
	defer context.AfterFunc(s.draining, func() { _ = http.NewResponseController(w).SetReadDeadline(time.Now()) })()

	content := s.untilDrained(r, r.Body)

	i, err := s.Contents.Upload(r.Context(), caller(r), name, role, rest.Query(r).Number("offset"), content)
	if err != nil {
		return err
	}

	rest.ShowRevision(w, s.State.View().Revision)

	return rest.WriteJSON(w, http.StatusOK, s.received(i))
}

func (s *Server) getImageFile(w http.ResponseWriter, r *http.Request, v *state.Scoped) error {
	content, f, err := s.Contents.Open(v, rest.Param(r, "name"), rest.Param(r, "role"))
	if err != nil {
		return err
	}
	defer content.Close()

	w.Header().Set("Content-Type", api.TypeBinary)
	w.Header().Set("ETag", `"`+f.Digest+`"`)

	defer context.AfterFunc(s.draining, func() { rest.EndStream(w) })()

	http.ServeContent(w, r, "", time.Time{}, struct {
		io.Reader
		io.Seeker
	}{s.untilDrained(r, content), content})

	return nil
}

// untilDrained returns a reader that fails once the server stops, or the caller of the request may not go on.
func (s *Server) untilDrained(r *http.Request, content io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		if err := cmp.Or(s.draining.Err(), r.Context().Err()); err != nil {
			return 0, err
		}
		return content.Read(p)
	})
}

type readerFunc func([]byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
