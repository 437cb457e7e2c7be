"""Calls every public method of the published Covia client, blocking and asynchronous: `covia_calls.py URL`.

Expects a worker with the scripted models `echo` and `never`. Ends with status 0 and the line `ok` when every one of
them had its effect, or was refused as the table says.
"""

import sys

import covia
from covia import Grid
from covia.async_api import AsyncGrid
import covia_agents as agents
import covia_parts as parts
import covia_table as table


def drive(connect, url):
    venue = connect(url, {})

    def scoped(task, call):
        other = connect(url, {"X-Trellis-Task": task})
        answer = call(other)
        other.close()
        return answer

    parts.venue(venue, url)
    parts.workspace(venue)
    parts.assets(venue)
    parts.secrets(venue)
    parts.jobs(venue)
    agents.agents(venue)
    agents.sessions(venue)
    agents.tasks(venue, scoped)
    agents.handle(venue)
    venue.close()


def main(url):
    table.check_complete()
    table.watch()
    owner = lambda name, more: {"X-Trellis-Owner": f"acme/{name}", **more}
    drive(lambda url, more: Grid.connect(url, headers=owner("blocking", more)), url)
    drive(lambda url, more: table.plain(AsyncGrid.connect(url, headers=owner("async", more))), url)
    parts.auth(url)
    parts.pure()
    table.check_called()
    print(f"ok covia {covia.__version__}, {len(table.rows())} methods")


main(sys.argv[1])
