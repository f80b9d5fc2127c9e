"""The live page opens with its story: the steps play once from the first one, examples say what to look for, the model is drawn."""

import pytest

STEP = "viewer.store.get().step"
LOOK = "document.querySelector('.typing .look').textContent"


@pytest.mark.slow
def test_the_steps_play_once_from_the_first_one_and_can_be_skipped(written_little, opened):
    live = opened(written_little)
    live.page.until("viewer.store.get().playing")
    assert live.page.ask(STEP) == 0
    live.ready()
    assert live.page.ask("viewer.store.get().playing"), "the model's first answer stops the story"
    live.page.until(f"{STEP} === 1", 10)
    assert live.page.ask("document.querySelector('.stages .now').textContent").startswith("2")
    live.page.ask("document.querySelector('.player .linklike').click()")
    assert not live.page.ask("viewer.store.get().playing")
    assert live.page.ask("document.querySelector('.stages .now').textContent") == "6sum"
    assert live.page.ask("document.querySelector('.player .linklike').hidden")


def test_who_wants_less_motion_gets_the_first_step_and_a_button(written_little, opened):
    live = opened(written_little, calm=True).ready()
    assert live.page.ask("[viewer.store.get().step, viewer.store.get().playing]") == [0, False]
    live.page.ask("document.querySelector('.play').click()")
    assert live.page.ask("viewer.store.get().playing")


def test_a_link_opens_what_it_names_without_the_story(written_little, opened):
    live = opened(f"{written_little.absolute().as_uri()}#panel=steps&step=3").ready()
    assert live.page.ask("[viewer.store.get().step, viewer.store.get().playing]") == [3, False]


def test_typing_ends_the_story_with_its_last_step(written_little, opened):
    live = opened(written_little).ready()
    live.page.until("viewer.store.get().playing")
    live.type("Cats sleep.")
    assert not live.page.ask("viewer.store.get().playing")
    assert live.page.ask("document.querySelector('.stages .now').textContent") == "6sum"


def test_each_example_is_read_and_says_what_to_look_for(written_little, opened):
    live = opened(written_little, calm=True).ready()
    count = live.page.ask("document.querySelectorAll('.examples button').length")
    for index in range(count):
        read = live.page.ask("Number(viewer.dataset.read)")
        live.page.ask(f"void document.querySelectorAll('.examples button')[{index}].click()")
        live.page.until(f"Number(viewer.dataset.read) > {read}", 30)
        word = live.page.ask("viewer.recording.heads[0].queries[viewer.store.get().token]")
        assert live.page.ask(LOOK).endswith((".", "?"))
        assert word in live.page.ask(f"document.querySelectorAll('.examples button')[{index}].title").lower()
        assert word in {"it", "bank", "apples", "their"}
    live.type("Cats sleep.")
    assert live.page.ask(LOOK) == ""


def test_a_layer_of_the_model_is_chosen_in_its_drawing(written_little, opened):
    live = opened(written_little, calm=True).ready()
    head = "viewer.recording.heads[viewer.store.get().head]"
    index = live.page.ask(f"{head}.head")
    for layer in (0, 2, 1):
        live.page.ask(f"document.querySelector('.where-line [data-layer=\"{layer}\"]').click()")
        assert live.page.ask(f"[{head}.number, {head}.head]") == [layer, index]
        pressed = live.page.ask(
            "[...document.querySelectorAll('.where-line [aria-pressed=true]')].map((each) => each.dataset.layer)"
        )
        assert pressed == [str(layer)]


def test_no_lesson_needs_another_model(written_little, opened):
    live = opened(written_little, calm=True).ready()
    assert live.page.ask("[...document.querySelectorAll('.tabs .lesson i')].map((each) => each.textContent)") == [
        "1",
        "3",
        "4",
        "5",
    ]


@pytest.mark.parametrize("panel", ["map"])
def test_roles_have_one_name_each(written_little, opened, panel):
    live = opened(written_little, calm=True).ready()
    live.page.ask(f"viewer.store.set({{ panel: '{panel}', sort: 'role' }})")
    named = set(
        live.page.ask(
            "[...document.querySelectorAll('.heads-head select')[1].options].slice(1).map((each) => each.textContent.replace(/ \\(.*/, ''))"
        )
    )
    about = live.page.ask("document.querySelector('.about p').textContent.split(': ')[1]")
    assert about in named
