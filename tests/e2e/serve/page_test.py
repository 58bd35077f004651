"""The page of `terrace serve` in Chromium without a screen, with the demo model and one tier node."""
import json
import re
import tempfile
import unittest

import server  # noqa: I001  (it finds the two below)
import programs
import support

STORY = "Tell me a story about a penguin."
# Nearly any token, and with this seed no end token after STORY before the context is full.
SLOW = {"temperature": 5, "top-p": 1, "top-k": 0, "min-p": 0, "seed": 3}
PHONE = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}


# [words, colour, what is behind them] of the elements in sight that have words of their own and can be used.
COLOURS_OF_TEXT = """
  const opaque = (colour) => colour.startsWith('rgb(');
  return [...document.body.querySelectorAll('*')].filter((e) => e.checkVisibility() && !e.closest('svg, .unseen, :disabled')
      && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())).map((e) => {
    let behind = e;
    while (!opaque(getComputedStyle(behind).backgroundColor) && behind.parentElement) behind = behind.parentElement;
    return [e.textContent.trim().slice(0, 40), getComputedStyle(e).color, getComputedStyle(behind).backgroundColor];
  });"""


def luminance(colour):
    """Of "rgb(r, g, b)", from 0 to 1, as WCAG 2.2 has it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


class Browser:
    """A page, and what one does with it. Everything waits until it is true, or for server.PATIENCE."""

    def __init__(self, url):
        selenium = support.module("selenium.webdriver")
        self.by = support.module("selenium.webdriver.common.by").By
        self.keys = support.module("selenium.webdriver.common.keys").Keys
        self.actions = selenium.ActionChains
        options = selenium.ChromeOptions()
        options.binary_location = support.tool("chromium")
        self._profile = tempfile.TemporaryDirectory(prefix="terrace-page-")
        for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1280,900",
                     f"user-data-dir={self._profile.name}"):
            options.add_argument(f"--{flag}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = selenium.Chrome(options=options, service=selenium.ChromeService(support.tool("chromedriver")))
        self.url = url
        self.driver.get("about:blank")
        self.requested()  # what the browser opens of its own

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.driver.quit()
        self._profile.cleanup()

    def open(self, fragment=""):
        """The page anew, with nothing kept from before."""
        self.driver.get(self.url + "/")
        self.js("localStorage.clear(); sessionStorage.clear()")
        self.reload(fragment)

    def reload(self, fragment=""):
        self.driver.get("about:blank")
        self.driver.get(self.url + "/" + fragment)

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def one(self, css):
        return self.driver.find_element(self.by.CSS_SELECTOR, css)

    def all(self, css):
        return self.driver.find_elements(self.by.CSS_SELECTOR, css)

    def text(self, css):
        return self.one(css).text

    def until(self, script):
        server.wait_until(lambda: self.js(f"return Boolean({script})"))

    def button(self, words):
        """The last of the buttons that say so."""
        return self.driver.find_elements(self.by.XPATH, f"//button[normalize-space()='{words}']")[-1]

    def send(self, text):
        self.one("#input").send_keys(text, self.keys.ENTER)

    def until_answered(self):
        self.until("!document.getElementById('send').hidden")
        return self.js("return [...document.querySelectorAll('.message.assistant > .text')].at(-1).innerText")

    def set(self, **values):
        self.one("#open-settings").click()
        for name, value in values.items():
            field = self.one(f"#set-{name.replace('-', '_')}")
            field.clear()
            field.send_keys(str(value))
        self.one("#close-settings").click()

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requested(self):
        """Every address that the page asked for since the last look."""
        told = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        return [each["params"]["request"]["url"] for each in told if each["method"] == "Network.requestWillBeSent"]

    def names(self):
        """(role, name) of everything that assistive technology is told of."""
        self.driver.execute_cdp_cmd("Accessibility.enable", {})
        nodes = self.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        return [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes
                if not node["ignored"] and "role" in node]

    def sideways(self):
        """By how many pixels the page is wider than the screen."""
        return self.js("return document.documentElement.scrollWidth - document.documentElement.clientWidth")


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        support.tool("chromium")
        node = cls.enterClassContext(programs.node("--ram", "256M", "--threads", "1"))
        cls.server = cls.enterClassContext(
            server.serve("--node", node.address, "--share", f"host=0-15,{node.address}=16-31"))
        cls.node = node.address
        cls.page = cls.enterClassContext(Browser(cls.server.url))

    def setUp(self):
        self.page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.page.open()

    def tearDown(self):
        self.assertEqual(self.page.complaints(), [])
        for url in self.page.requested():
            self.assertTrue(url.startswith((self.server.url + "/", "data:", "about:")), url)

    def test_policy_lets_nothing_else_in(self):
        status, _, headers = self.server.get("/")
        self.assertEqual(status, 200)
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        self.assertIn("frame-ancestors 'none'", headers["Content-Security-Policy"])
        refused = self.page.js("try { document.body.innerHTML = '<b>x</b>' } catch (error) { return error.name }")
        self.assertEqual(refused, "TypeError")
        self.page.complaints()  # the browser notes that it refused

    def test_message_is_answered_and_the_conversation_goes_on(self):
        page = self.page
        page.set(temperature=0, max_tokens=12)
        page.send(STORY)
        first = page.until_answered()
        self.assertTrue(first)
        self.assertEqual(page.text(".message.user .text"), STORY)
        self.assertIn("12 tokens", page.text(".message-foot"))
        self.assertIn("Cut at the limit", page.text(".message-foot"))
        page.send("And then?")
        page.until_answered()
        self.assertEqual(len(page.all(".message")), 4)
        self.assertIn("reused", page.all(".message-foot")[-1].text)  # the first turn's tokens
        page.reload()
        self.assertEqual(len(page.all(".message")), 4)  # kept by the browser
        page.button("Clear conversation").click()
        self.assertEqual(page.all(".message"), [])
        page.reload()
        self.assertEqual(page.all(".message"), [])

    def test_text_streams_in_and_stops_and_is_made_anew(self):
        page = self.page
        page.set(**SLOW)
        page.js("""window.lengths = new Set(); new MutationObserver(() => lengths.add(
                   document.querySelector('.message.assistant > .text')?.innerText.length ?? 0))
                   .observe(document.getElementById('messages'), {childList: true, subtree: true, characterData: true})""")
        page.send(STORY)
        page.until("lengths.size > 3")
        page.actions(page.driver).send_keys(page.keys.ESCAPE).perform()
        self.assertTrue(page.until_answered())
        self.assertIn("Stopped", page.text(".message-foot"))
        server.wait_until(lambda: self.server.slots_in_use() == 0)
        page.set(temperature=0.8, seed=7, max_tokens=8)
        page.button("Regenerate").click()
        once = page.until_answered()
        page.button("Regenerate").click()
        self.assertEqual(page.until_answered(), once)  # the seed was sent
        self.assertEqual(len(page.all(".message")), 2)

    def test_streamed_text_is_read_out_without_flooding(self):
        page = self.page
        page.js("""window.said = []; const region = document.getElementById('announcer');
                   new MutationObserver(() => said.push(region.textContent)).observe(region, {childList: true});
                   window.drawn = 0; new MutationObserver(() => ++drawn)
                   .observe(document.getElementById('messages'), {childList: true, subtree: true})""")
        page.set(temperature=0, max_tokens=200)
        page.js("window.began = performance.now()")
        page.send(STORY)
        text = page.until_answered()
        page.until("said.at(-1).includes('The answer is complete.')")
        said, seconds = page.js("return [said, (performance.now() - began) / 1000]")
        self.assertLessEqual(len(said), 3 + seconds / 4)
        words = " ".join(said).split()
        self.assertEqual([word for word in text.split() if word not in words], [])

    def test_markdown_becomes_elements_and_html_stays_text(self):
        page = self.page
        answer = ("**bold** `code` <img src=x onerror=alert(1)> [go](https://example.org/) [no](javascript:alert(1))\n\n"
                  "- one\n  - two\n\n```c\nint <b>;\n```\n\n|a|b|\n|-|-|\n|1|2|\n")
        kept = [{"role": "user", "content": "<b>hi</b>"}, {"role": "assistant", "content": answer, "reasoning": "*hm*"}]
        page.js("localStorage.setItem('terrace.conversation', arguments[0])", json.dumps(kept))
        page.reload()
        self.assertEqual(page.text(".message.user .text"), "<b>hi</b>")
        self.assertIn("<img src=x onerror=alert(1)>", page.text(".message.assistant > .text"))
        for css, n in {"img, script, b": 0, "strong": 1, "ul ul li": 1, "pre code": 1, "td": 2, "a": 1}.items():
            self.assertEqual(len(page.all(", ".join(f".message.assistant > .text {one}" for one in css.split(", ")))), n, css)
        self.assertEqual(page.one(".message.assistant a").get_attribute("rel"), "noopener noreferrer")
        reasoning = page.one("details.reasoning")
        self.assertIsNone(reasoning.get_attribute("open"))  # folded
        page.one("details.reasoning summary").click()
        self.assertEqual(page.text(".thought em"), "hm")

    def test_text_made_to_be_slow_is_shown_all_the_same(self):
        page, long = self.page, 60000
        lines = ["# " + " " * long + "x", "**a " * long, "`a " * long, "a|b\n-" + " " * long + "x", "- " * long,
                 "```" + " " * long + "`", "[" * long, "> " * long, "_a " * long]
        kept = [{"role": "assistant", "content": "\n\n".join(lines) + "\n\n**the end**"}]
        page.js("localStorage.setItem('terrace.conversation', arguments[0])", json.dumps(kept))
        page.reload()
        self.assertEqual(page.text(".message.assistant > .text > p:last-child strong"), "the end")

    def test_tiers_show_who_computes_what(self):
        page = self.page
        page.set(max_tokens=12)
        page.send(STORY)
        page.until_answered()
        page.one("#link-tiers").click()
        page.until("document.querySelectorAll('.leg-card').length === 2 && document.querySelector('#map-table td')")
        self.assertEqual([name.text for name in page.all(".leg-name")], ["host", self.node])
        self.assertIn("Round trip", page.all(".leg-card")[1].text)
        self.assertNotIn("Round trip", page.all(".leg-card")[0].text)
        pairs = {leg["name"]: leg["pairs"] for leg in self.server.get("/tiers")[1]["legs"]}
        self.assertGreater(pairs[self.node], 0)
        for name, card in zip(pairs, page.all(".leg-card")):
            self.assertIn(f"{pairs[name]:,}", card.text)
        page.one(".table-toggle summary").click()
        self.assertEqual(page.text("#map-table tbody tr td"), "0–15")
        self.assertGreater(page.js("""const map = document.getElementById('map');
            return new Set(map.getContext('2d').getImageData(0, 0, map.width, map.height).data).size"""), 20)  # colours
        page.one("#map").send_keys(page.keys.ARROW_DOWN, page.keys.ARROW_RIGHT)
        self.assertRegex(page.text("#map-read"), r"^Layer 1, expert 1: host, used [\d,]+ times?$")

    def test_use_of_experts_is_the_pairs_of_their_legs(self):
        self.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3})
        tiers = self.server.get("/tiers")[1]
        counted = [0] * len(tiers["legs"])
        for owners, use in zip(tiers["experts"]["owners"], tiers["experts"]["use"]):
            for leg, n in zip(owners, use):
                counted[leg] += n
        self.assertEqual(counted, [leg["pairs"] for leg in tiers["legs"]])

    def test_controls_have_names_and_roles(self):
        page = self.page
        page.until("document.getElementById('model-name').textContent")
        names = page.names()
        for wanted in (("textbox", "Message"), ("button", "Send"), ("button", "Settings"), ("link", "Chat"),
                       ("link", "Tiers"), ("region", "Conversation"), ("navigation", "Views"), ("link", "Skip to content")):
            self.assertIn(wanted, names)
        page.one("#open-settings").click()
        names += page.names()
        for wanted in ("System message", "Temperature", "Top-p", "Top-k", "Min-p", "Seed", "Max tokens"):
            self.assertIn(wanted, [name for _, name in names])
        self.assertIn(("dialog", "Settings"), names)
        page.one("#close-settings").click()
        page.one("#link-tiers").click()
        page.until("document.querySelector('.leg-card')")
        names += page.names()
        self.assertIn(("checkbox", "Shade by use"), names)
        controls = {"button", "link", "textbox", "spinbutton", "checkbox", "dialog", "region", "image", "application"}
        self.assertEqual([role for role, name in names if role in controls and not name], [])

    def test_keyboard_alone_reaches_everything(self):
        page, keys = self.page, self.page.keys
        page.js("document.activeElement.blur()")
        reached = []
        for _ in range(10):
            page.actions(page.driver).send_keys(keys.TAB).perform()
            reached.append(page.js("return document.activeElement.id || document.activeElement.textContent"))
            self.assertNotEqual(page.js("return getComputedStyle(document.activeElement).outlineStyle")
                                if reached[-1] not in ("input", "") else "", "none", reached[-1])  # the box shows it
        for wanted in ("skip", "link-chat", "link-tiers", "conversation", "input", "send", "open-settings"):
            self.assertIn(wanted, reached)

    def test_phone_width_needs_no_scrolling_sideways(self):
        page = self.page
        page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
        kept = [{"role": "user", "content": "w" * 300}, {"role": "assistant", "content": "`" + "c" * 300 + "`\n\n```\n" + "x" * 300 + "\n```"}]
        page.js("localStorage.setItem('terrace.conversation', arguments[0])", json.dumps(kept))
        page.reload()
        self.assertEqual(page.js("return innerWidth"), PHONE["width"])
        self.assertEqual(page.sideways(), 0)
        self.assertEqual(page.js("const c = document.getElementById('conversation'); return c.scrollWidth - c.clientWidth"), 0)
        page.one("#link-tiers").click()
        page.until("document.querySelector('.leg-card') && document.querySelector('#map-table td')")
        self.assertEqual(page.sideways(), 0)
        self.assertEqual(page.js("const t = document.getElementById('view-tiers'); return t.scrollWidth - t.clientWidth"), 0)

    def test_colours_follow_the_system_and_stay_readable(self):
        page = self.page
        self.addCleanup(page.driver.execute_cdp_cmd, "Emulation.setEmulatedMedia", {"features": []})
        kept = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Once `upon` a time"}]
        page.js("localStorage.setItem('terrace.conversation', arguments[0])", json.dumps(kept))
        for scheme in ("dark", "light"):
            page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                        {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
            for view in ("", "#tiers"):
                page.reload(view)
                page.until("document.querySelector('.leg-card')" if view else "document.querySelector('.message.assistant')")
                found = page.js(COLOURS_OF_TEXT)
                self.assertGreater(len(found), 5)
                behind = luminance(page.js("return getComputedStyle(document.body).backgroundColor"))
                (self.assertLess if scheme == "dark" else self.assertGreater)(behind, 0.05 if scheme == "dark" else 0.8)
                for words, colour, background in found:
                    self.assertGreaterEqual(contrast(colour, background), 4.5,
                                            f"{scheme} {view}: {words!r} is {colour} on {background}")


class PageInTrouble(unittest.TestCase):
    def test_key_is_asked_for_once_and_kept_for_the_tab(self):
        support.tool("chromium")
        with server.write_keys("sk-right") as keys, server.serve("--api-key-file", keys.name) as running:
            with Browser(running.url) as page:
                page.open()
                page.until("!document.getElementById('key-form').hidden")
                for key in ("sk-wrong", "sk-right"):
                    page.one("#key-input").send_keys(key, page.keys.ENTER)
                    page.until("document.getElementById('key-form').hidden === " + str(key == "sk-right").lower())
                page.until("document.getElementById('model-name').textContent")
                page.set(max_tokens=4)
                page.send(STORY)
                self.assertTrue(page.until_answered())
                page.driver.refresh()
                page.until("document.getElementById('model-name').textContent")
                self.assertNotIn("sk-right", page.js("return JSON.stringify(localStorage)"))

    def test_errors_are_said_in_plain_words(self):
        support.tool("chromium")
        with server.serve() as running, Browser(running.url) as page:
            page.open()
            page.js("localStorage.setItem('terrace.settings', JSON.stringify({system: 'word '.repeat(3000)}))")
            page.reload()
            page.send(STORY)
            page.until_answered()
            self.assertIn("longer than the model can read", page.text(".problem"))
            running.end()
            page.button("Try again").click()
            page.until_answered()
            self.assertIn("The server cannot be reached", page.text(".problem"))
            page.until("document.getElementById('server-state-text').textContent === 'Not reachable'")


if __name__ == "__main__":
    support.main()
