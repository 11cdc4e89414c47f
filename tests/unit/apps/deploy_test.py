"""The files by which others start Troupe: systemd accepts the unit, and it names what the program has."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["TROUPE_SOURCE_DIR"])
UNIT = SOURCE / "apps/deploy/troupe-node@.service"


class Unit(unittest.TestCase):
    def verify(self, text):
        """What systemd-analyze says of a unit."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / UNIT.name
            # The program and its manual are not installed here, and neither is a network to wait for.
            text = text.replace("/usr/bin/troupe", "/bin/true").replace("file:/usr/share/doc/troupe/ARCHITECTURE.md", "https://example.org/")
            file.write_text(text)
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(file)], capture_output=True, text=True, timeout=60, env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"})
            return done.returncode, done.stdout + done.stderr

    def test_systemd_accepts_it(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not there")
        code, said = self.verify(UNIT.read_text())
        self.assertEqual((code, said), (0, ""))

    def test_systemd_would_complain(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not there")
        code, said = self.verify(UNIT.read_text().replace("KillMode=mixed", "KilMode=mixed"))
        self.assertIn("KilMode", said)
        code, said = self.verify(UNIT.read_text().replace("/usr/bin/troupe node", "/usr/bin/nothing-here node"))
        self.assertNotEqual((code, said), (0, ""))

    def test_its_commands_exist(self):
        program = os.environ.get("TROUPE_BIN")
        if not program:
            self.skipTest("the program is not built")
        commands = re.findall(r"^Exec\w+=/usr/bin/troupe (.*)$", UNIT.read_text(), re.M)
        self.assertTrue(any(command.startswith("node ") for command in commands), commands)
        for command in commands:
            words = [w for w in command.split() if not w.startswith("/") and w != "%i"]
            options = [w for w in words if w.startswith("--")]
            known = subprocess.run([program, *[w for w in words if w not in options], "--help"], capture_output=True, text=True, timeout=60)
            self.assertEqual(known.returncode, 0, known.stderr)
            for option in options:
                self.assertIn(option, known.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
