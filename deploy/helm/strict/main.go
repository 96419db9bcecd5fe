// Command strict decodes manifests from standard input by the types of Kubernetes, and fails where a
// field is unknown, stands twice, or has a value of another type. Kinds of others are let pass.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	admission "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func main() {
	if err := check(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "strict:", err)
		os.Exit(1)
	}
}

func check(manifests io.Reader) error {
	scheme := runtime.NewScheme()
	add := []func(*runtime.Scheme) error{
		admission.AddToScheme, apps.AddToScheme, batch.AddToScheme, core.AddToScheme, rbac.AddToScheme,
	}
	for _, add := range add {
		if err := add(scheme); err != nil {
			return err
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	reader := yaml.NewYAMLReader(bufio.NewReader(manifests))
	known := 0
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		_, _, err = decoder.Decode(document, nil, nil)
		switch {
		case runtime.IsNotRegisteredError(err):
		case err != nil:
			return fmt.Errorf("%w in:\n%s", err, document)
		default:
			known++
		}
	}
	if known == 0 {
		return errors.New("no manifest")
	}
	return nil
}
