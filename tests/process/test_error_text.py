from passlab.process.error_text import last_line, reason


def test_an_operator_of_relax_is_told_by_its_name():
    record = (
        'ir.Op(span=None, name="relax.add", arguments=(ir.ArgumentInfo(name="x1")), num_inputs=2, support_level=10)'
    )
    assert last_line(f"In {record}, the shapes do not fit.") == "In relax.add, the shapes do not fit"


def test_the_line_after_a_stack_is_the_sentence():
    error = ValueError('Traceback:\n  File "x.cc", line 3\nTVMError: Check failed: (a == b) is false: no channels.')
    assert reason(error) == "no channels"
