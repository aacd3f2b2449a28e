"""A deployment table that tests fill by hand; everything else is the real `Directory`."""

import uuid
from dataclasses import dataclass, field

from typing_extensions import override

from advisor.errors import NotAllowed
from advisor.states import DeploymentState
from api.proxy.endpoints import Directory, Endpoint
from db import identity


@dataclass(slots=True)
class PlantedDirectory(Directory):
    """Knows the keys of `callers` and whatever `serve` was told."""

    callers: dict[str, identity.Principal] = field(default_factory=dict)

    @override
    def load(self) -> None:
        self.loaded = True

    @override
    def _authenticate(self, key_text: str) -> identity.Principal:
        if key_text not in self.callers:
            raise NotAllowed("call", "use a key of a caller that the test planted")
        return self.callers[key_text]

    def serve(
        self,
        name: str,
        project_id: uuid.UUID,
        *,
        port: int | None,
        model: str = "internal-x",
        state: DeploymentState = DeploymentState.SERVING,
    ) -> None:
        """A deployment on a loopback port."""
        endpoint = Endpoint(
            deployment_id=uuid.uuid4(),
            project_id=project_id,
            name=name,
            state=state,
            reason=None,
            host="127.0.0.1",
            port=port,
            served_model_name=model,
        )
        self.endpoints = {**self.endpoints, name: endpoint}
