"""The package `instructor`: structured output in its modes."""

import instructor
from openai import OpenAI
from pydantic import BaseModel


class Weather(BaseModel):
    city: str
    degrees: int


for mode in [instructor.Mode.TOOLS, instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA]:
    client = instructor.from_openai(OpenAI(timeout=60), mode=mode)
    messages = [{"role": "user", "content": "Paris, in degrees, as JSON"}]
    found = client.chat.completions.create(model="holdfast", response_model=Weather, messages=messages)
    # A class of its own that has ours as its base.
    assert isinstance(found, Weather) and found.model_dump() == {"city": "Paris", "degrees": 21}, found
    print(mode.name, "ok", flush=True)
