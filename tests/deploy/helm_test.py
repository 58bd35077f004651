"""deploy/helm: the chart as Helm itself renders it, against the schemas of Kubernetes and the program's own flags."""

import unittest

import commands
import support
import units

CHART = support.DEPLOY / "helm/terrace-node"
OLDEST, NEWEST = "1.27", "1.37"  # of kubeVersion in Chart.yaml; the newest that the schemas know

# Values that reach every branch of the templates.
VARIANTS = {
    "defaults": {},
    "own model": {"model": {"existingClaim": "models", "file": "qwen3/model.gguf"}, "node": {"ram": "48G"}},
    "loopback without a secret": {"listen": {"host": "127.0.0.1", "port": 9100}, "secret": {"name": ""}},
    "another secret": {"secret": {"name": "mine", "key": "line"}, "listen": {"host": "[::]"}},
    "placed": {
        "nodeSelector": {"disk": "nvme"},
        "tolerations": [{"key": "big", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "podAnnotations": {"team": "models"},
        "image": {"tag": "1.2", "pullSecrets": [{"name": "registry"}]},
        "persistence": {"storageClass": "fast"},
        "seccompProfile": {"type": "Localhost", "localhostProfile": "terrace.json"},
    },
}


def render(values):
    """The manifests, by kind."""
    helm, yaml = support.module("helm_python"), support.module("yaml")
    with helm.Chart.load(str(CHART)) as chart:
        chart.validate_schema(values)
        texts = chart.render(values, name="experts", namespace="models")
    documents = [
        document for name, text in texts.items() if name.endswith(".yaml") for document in yaml.safe_load_all(text)
    ]
    return {document["kind"]: document for document in documents if document}


def container(manifests):
    (only,) = manifests["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    return only


class Chart(unittest.TestCase):
    def test_lint_finds_nothing(self):
        helm = support.module("helm_python")
        found = helm.lint(str(CHART), strict=True)["messages"]
        # Severity 1 is advice, and the only one is that a chart have an icon.
        self.assertEqual([message for message in found if message["severity"] > 1], [])

    def test_each_manifest_is_valid_in_the_oldest_and_newest_kubernetes(self):
        kubernetes = support.module("kubernetes_validate")
        for name, values in VARIANTS.items():
            manifests = render(values)
            self.assertEqual(sorted(manifests), ["PodDisruptionBudget", "Service", "StatefulSet"], name)
            for manifest in manifests.values():
                for version in (OLDEST, NEWEST):
                    kubernetes.validate(manifest, version, strict=True)

    def test_a_planted_field_is_not_valid(self):
        kubernetes = support.module("kubernetes_validate")
        manifest = render({})["StatefulSet"]
        manifest["spec"]["replica"] = 3
        with self.assertRaises(kubernetes.ValidationError):
            kubernetes.validate(manifest, NEWEST, strict=True)

    def test_each_node_starts_and_is_asked_by_commands_that_the_programs_take(self):
        for name, values in VARIANTS.items():
            node = container(render(values))
            commands.check(self, ["terrace-node", *node["args"]], name)
            probe = node["readinessProbe"]
            if "exec" in probe:
                commands.check(self, probe["exec"]["command"], f"{name}, probe")

    def test_node_and_probes_have_the_secret_that_is_mounted(self):
        for name, file in (("defaults", "/etc/terrace/secret/secret"), ("another secret", "/etc/terrace/secret/line")):
            manifests = render(VARIANTS[name])
            node = container(manifests)
            self.assertIn(f"--secret-file={file}", node["args"], name)
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                self.assertIn(f"--secret-file={file}", node[probe]["exec"]["command"], name)
            (mount,) = [each for each in node["volumeMounts"] if each["name"] == "secret"]
            self.assertEqual((mount["mountPath"], mount["readOnly"]), ("/etc/terrace/secret", True))
            (volume,) = manifests["StatefulSet"]["spec"]["template"]["spec"]["volumes"]
            self.assertEqual(volume["secret"]["defaultMode"], 0o400)
        alone = container(render(VARIANTS["loopback without a secret"]))
        self.assertNotIn("secret", str(alone))

    def test_probes_ask_where_the_node_listens(self):
        for name, at in (("defaults", "127.0.0.1:9000"), ("another secret", "[::1]:9000")):
            self.assertIn(f"--node={at}", container(render(VARIANTS[name]))["readinessProbe"]["exec"]["command"])

    def test_listening_beyond_loopback_without_a_secret_is_refused(self):
        helm = support.module("helm_python")
        with self.assertRaisesRegex(helm.HelmError, "secret.name"):
            render({"secret": {"name": ""}})

    def test_stopping_has_the_time_that_the_unit_gives(self):
        pod = render({})["StatefulSet"]["spec"]["template"]["spec"]
        self.assertEqual(pod["terminationGracePeriodSeconds"], units.stop_seconds("terrace-node"))

    def test_values_that_the_chart_does_not_know_are_refused(self):
        helm = support.module("helm_python")
        with self.assertRaisesRegex(helm.HelmError, "replica"):
            render({"replica": 3})
        with self.assertRaisesRegex(helm.HelmError, "existingClaim"):
            render({"model": {"file": "model.gguf"}})


if __name__ == "__main__":
    support.main()
