"""What Kubernetes would be given, as JSON on stdout, after a check of each document against its schemas.

    manifests.py kustomize FOLDER [COMPONENT ...]
    manifests.py chart FOLDER VALUES
"""

import json
import re
import sys
from pathlib import Path

import kubernetes_validate
import yaml

# The oldest with all that is used, and the newest known.
VERSIONS = ["1.27", kubernetes_validate.latest_version()]
# Of others, whose schemas Kubernetes doesn't have.
FOREIGN = {"ScaledObject"}


class Loader(yaml.SafeLoader):
    """One that takes no key twice."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"twice: {sorted(twice)}", node.start_mark)
        return super().construct_mapping(node, deep)


def load_all(text):
    return [doc for doc in yaml.load_all(text, Loader) if doc is not None]


def load(path):
    (doc,) = load_all(path.read_text())
    return doc


def removed(doc, pointer):
    *way, last = pointer.strip("/").split("/")
    for step in way:
        doc = doc[step]
    del doc[last]


def patched(docs, patch):
    target = patch["target"]
    hit = [d for d in docs if d["kind"] == target["kind"] and d["metadata"]["name"] == target["name"]]
    assert len(hit) == 1, f"{target} is {len(hit)} documents"
    for step in load_all(patch["patch"])[0]:
        assert step["op"] == "remove", step
        removed(hit[0], step["path"])


def built(folder, components):
    """As `kubectl kustomize` builds it, without the hash in the name of what is generated."""
    base = load(folder / "kustomization.yaml")
    read = {"kustomization.yaml", *base["resources"]}
    docs = [doc for name in base["resources"] for doc in load_all((folder / name).read_text())]
    for generated in base["configMapGenerator"]:
        data = {name: (folder / name).read_text() for name in generated["files"]}
        meta = {"name": generated["name"], "labels": generated["options"]["labels"]}
        docs.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})
    for component in components:
        part = load(folder / component / "kustomization.yaml")
        assert part["kind"] == "Component", part
        docs += [doc for name in part["resources"] for doc in load_all((folder / component / name).read_text())]
        for patch in part["patches"]:
            patched(docs, patch)
        assert {p.name for p in (folder / component).iterdir()} == {"kustomization.yaml", *part["resources"]}
    for doc in docs:
        if doc["kind"] != "Namespace":
            doc["metadata"]["namespace"] = base["namespace"]
        for pod in (d["spec"]["template"]["spec"] for d in [doc] if d["kind"] == "Deployment"):
            for container in pod["containers"]:
                (image,) = [i for i in base["images"] if i["name"] == container["image"]]
                container["image"] = f"{image['newName']}:{image['newTag']}"
    unread = {path.name for path in folder.glob("*.yaml")} - read
    assert not unread, f"nobody reads {unread}"
    return docs


def rendered(folder, values):
    import helm_python as helm

    found = helm.lint(str(folder))
    serious = [m for m in found["messages"] if m["severity"] > 1]
    assert not serious and not found["errors"], found
    with helm.Chart.load(str(folder)) as chart:
        chart.validate_schema(values)
        texts = chart.render(values, name="trellis", namespace="trellis")
    notes = [text for name, text in texts.items() if name.endswith("NOTES.txt")]
    assert notes and not re.search(r"<no value>|\{\{", "".join(texts.values())), "something has no value"
    return [doc for name, text in texts.items() if name.endswith(".yaml") for doc in load_all(text)]


def main():
    how, folder, *more = sys.argv[1:]
    if how == "kustomize":
        docs = built(Path(folder), more)
    else:
        docs = rendered(Path(folder), json.loads(more[0]))
    for doc in docs:
        for version in [] if doc["kind"] in FOREIGN else VERSIONS:
            kubernetes_validate.validate(doc, version, strict=True)
    json.dump(docs, sys.stdout)


if __name__ == "__main__":
    main()
