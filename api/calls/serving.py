"""Calls about deployments and what they serve."""

from api.calls.connection import Connection, page_of, part
from api.schemas import DeploymentView, Page
from api.wire import Answer


class ServingCalls(Connection):
    """Deployments, and one question to one."""

    def deploy(
        self,
        *,
        name: str,
        recommendation_id: str,
        config_hash: str,
        idempotency_key: str | None = None,
    ) -> DeploymentView:
        """Want an approved configuration served as `name`; replaces an earlier generation."""
        body = {
            "name": name,
            "recommendation_id": recommendation_id,
            "config_hash": config_hash,
        }
        return self._wire.post("/v1/deployments", DeploymentView, body, idempotency_key)

    def deployments(self, *, limit: int = 50, cursor: str | None = None) -> Page[DeploymentView]:
        """Deployments, newest first."""
        return self._wire.get("/v1/deployments", Page[DeploymentView], page_of(limit, cursor))

    def deployment(self, deployment_id: str) -> DeploymentView:
        """One deployment."""
        return self._wire.get(f"/v1/deployments/{part(deployment_id)}", DeploymentView)

    def stop_deployment(self, deployment_id: str) -> DeploymentView:
        """Drain and stop."""
        return self._wire.post(f"/v1/deployments/{part(deployment_id)}/stop", DeploymentView, None)

    def ask(
        self, url: str, question: str, *, model: str, max_tokens: int = 256, wait_s: float = 0.0
    ) -> Answer:
        """A served model's answer; `url` and `model` are the deployment's `url` and `name`.

        For `wait_s` seconds a proxy that does not know the deployment yet is asked again.
        """
        return self._wire.ask(
            url, model=model, question=question, max_tokens=max_tokens, wait_s=wait_s
        )
