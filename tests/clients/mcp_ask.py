import asyncio

from mcp import Client


async def main() -> None:
    async with Client("http://127.0.0.1:8420/mcp") as client:
        result = await client.call_tool("ask_helper", {"input": "Say hello"})
        print(result.structured_content["output"])


asyncio.run(main())
