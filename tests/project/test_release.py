"""Attacks what a release states: versions and addresses that differ, links that lead nowhere."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
METADATA = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, BUILD = METADATA["project"], METADATA["build-system"]["requires"]
SOURCE, SITE = PROJECT["urls"]["Source"], PROJECT["urls"]["Documentation"]


def published_readme() -> str:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text: str = module.absolute((ROOT / "README.md").read_text(), SOURCE, "v1")
    return text


def test_every_file_states_the_version_and_the_addresses_of_pyproject() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    server = json.loads((ROOT / "server.json").read_text())
    site = (ROOT / "mkdocs.yml").read_text()
    (package,) = server["packages"]
    versions = {citation["version"], server["version"], package["version"], PROJECT["version"]}
    assert len(versions) == 1
    assert f"=={PROJECT['version']}" in package["runtimeArguments"][0]["value"]
    assert citation["repository-code"] == server["repository"]["url"] == SOURCE
    assert server["websiteUrl"] == SITE
    assert f"site_url: {SITE}\n" in site
    assert f"## [{PROJECT['version']}]" in (ROOT / "CHANGELOG.md").read_text()
    assert all(url.startswith((SOURCE, SITE)) for url in PROJECT["urls"].values())


def test_the_registry_of_agents_servers_finds_the_readme() -> None:
    server = json.loads((ROOT / "server.json").read_text())
    assert f"mcp-name: {server['name']}" in (ROOT / "README.md").read_text()
    assert len(server["description"]) <= 100  # the registry's limit
    (package,) = server["packages"]
    # It is run by the name of the package, which has to be a command.
    assert package["identifier"] in PROJECT["scripts"]


def test_links_of_the_published_readme_lead_to_files_of_the_repository() -> None:
    text = published_readme()
    targets = re.findall(r"\]\(([^)#]+)", text)
    assert len(targets) > 8
    for target in targets:
        assert target.startswith((f"{SOURCE}/blob/v1/", f"{SOURCE}/raw/v1/"))
        assert (ROOT / target.split("/v1/")[1]).is_file(), target
    assert "/raw/v1/docs/assets/demo.svg)" in text  # a page of HTML is no picture


@pytest.mark.parametrize("workflow", sorted((ROOT / ".github" / "workflows").glob("*.yml")))
def test_workflows_call_what_the_makefile_has(workflow: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    steps = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    for target in re.findall(r"\bmake ([a-z-]+)", "\n".join(steps)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    assert "timeout-minutes" in workflow.read_text()


def test_the_published_site_switches_between_versions() -> None:
    published = yaml.safe_load((ROOT / "mkdocs.versions.yml").read_text())
    assert published["INHERIT"] == "mkdocs.yml"
    assert published["extra"]["version"]["provider"] == "mike"
    for workflow, version in (("pages", "VERSION=dev"), ("release", "ALIAS=latest")):
        text = (ROOT / ".github" / "workflows" / f"{workflow}.yml").read_text()
        assert "make site-version" in text and version in text and "concurrency: gh-pages" in text


def test_classifiers_name_every_version_that_the_workflows_run() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    named = {"3.11", *jobs["versions"]["strategy"]["matrix"]["python"]}
    prefix = "Programming Language :: Python :: "
    stated = {entry.removeprefix(prefix) for entry in PROJECT["classifiers"] if prefix in entry}
    assert stated - {"3 :: Only"} <= named


def test_the_recipe_for_conda_states_what_pyproject_states() -> None:
    recipe = yaml.safe_load((ROOT / "publishing" / "conda" / "recipe.yaml").read_text())
    context, needed = recipe["context"], recipe["requirements"]
    assert context["version"] == PROJECT["version"]
    assert PROJECT["requires-python"] == f">={context['python_min']}"
    bounds = {one.lower().replace(" ", "") for one in needed["run"]}
    assert bounds - {"python>=${{python_min}}"} == {one.lower() for one in PROJECT["dependencies"]}
    assert {"pip", *BUILD} <= {one.replace(" ", "") for one in needed["host"]}
    scripts = {f"{name} = {target}" for name, target in PROJECT["scripts"].items()}
    assert set(recipe["build"]["python"]["entry_points"]) == scripts
    about = recipe["about"]
    assert (about["summary"], about["license"]) == (PROJECT["description"], PROJECT["license"])
    assert {about["homepage"], about["repository"]} == {SOURCE} and about["documentation"] == SITE
    source = (ROOT / "publishing" / "conda" / recipe["source"]["path"]).resolve()
    assert source == ROOT and (source / about["license_file"]).is_file()


def test_the_package_for_optuna_hub_passes_the_checks_of_the_registry() -> None:
    # Transcribed from optunahub-registry: header_confirm.py, the template, and CONTRIBUTING.md.
    # Its rules for ruff are in optunahub/ruff.toml, which make lint reads.
    (folder,) = (ROOT / "optunahub" / "package").glob("*/*/")
    tags = {"samplers": "sampler", "pruners": "pruner", "visualization": "visualization"}
    files = {file.name: file.read_text("utf-8") for file in folder.iterdir() if file.is_file()}
    assert {"README.md", "LICENSE", "__init__.py", "example.py"} <= set(files)
    _, front, body = files["README.md"].split("---\n", 2)
    header = yaml.safe_load(front)
    texts, lists = {"author", "title", "description", "license"}, {"tags", "optuna_versions"}
    assert set(header) == texts | lists
    assert all(isinstance(header[field], str) for field in texts)
    # A version of two numbers without quotes would be a float.
    assert all(isinstance(entry, str) for field in lists for entry in header[field])
    assert all(isinstance(header[field], list) and header[field] for field in lists)
    assert header["license"] == "MIT License" and tags[folder.parent.name] in header["tags"]
    headings = re.findall(r"^## (.+)$", body, re.MULTILINE)
    required = ["Abstract", "Class or Function Names", "Installation", "Example", "Others"]
    assert headings == required and "Please fill in" not in body
    assert files["LICENSE"].startswith("MIT License") and header["author"] in files["LICENSE"]
    # The module offers the names that the page lists, and reads its annotations late.
    tree = ast.parse(files["__init__.py"])
    offered = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    assert set(re.findall(r"^- `(\w+)\(", body, re.MULTILINE)) == set(offered)
    sources = [text for name, text in files.items() if name.endswith(".py")]
    assert all("\nfrom __future__ import annotations\n" in text for text in sources)
    # What it needs is an extra of this package.
    (needed,) = files["requirements.txt"].split()
    assert needed.partition("[")[2].rstrip("]") in PROJECT["optional-dependencies"]
    assert f"pip install '{needed}'" in body


def test_the_paper_shows_the_table_of_the_pages_and_cites_what_it_lists() -> None:
    folder = ROOT / "publishing" / "joss"
    paper, bibliography = (folder / "paper.md").read_text(), (folder / "paper.bib").read_text()
    page = (ROOT / "docs" / "explanation" / "one_test.md").read_text()
    table = re.findall(r"^\|.*\|$", paper, re.MULTILINE)
    assert len(table) > 10 and all(row in page for row in table)
    commands = re.findall(r"`(python benchmarks/[^`]+)`", paper)
    assert commands and all(f"`{command}`" in page for command in commands)
    assert set(re.findall(r"@(\w+\d{4}\w+|thresholdoutauc)", paper)) == set(
        re.findall(r"^@\w+\{(\w+),", bibliography, re.MULTILINE)
    )
