"""The tokens of OAUTHBEARER as kafka-python asks for them."""

from __future__ import annotations

from kafka.net.sasl.oauth import AbstractTokenProvider

from loosehanger.kafka.oauth import ClientCredentials, TokenError, provider
from loosehanger.kafka.patches import NoTokenError


class SharedTokens(AbstractTokenProvider):  # type: ignore[misc]
    """The tokens of one client's credentials, which all of this process's clients share."""

    def __init__(self, credentials: ClientCredentials) -> None:
        """Takes the credentials; asks for nothing yet."""
        super().__init__()
        self._credentials = credentials

    def token(self) -> str:
        """Returns a valid token.

        Raises:
            NoTokenError: the identity provider gives none.
        """
        try:
            return provider(self._credentials).token()
        except TokenError as error:
            raise NoTokenError(str(error)) from error

    def extensions(self) -> dict[str, str]:
        """Returns the SASL extensions."""
        return dict(self._credentials.extensions)
