"""Day 2, writing a pass: its exercises."""

from __future__ import annotations

from passlab.judge import Core, Exercise

PASS_POINTS = {"valid": 1, "same": 3, "did": 3, "spared": 2, "cost": 1}

#: notebook → flavour; exercises without a notebook belong to the first
NOTEBOOKS = {"passes": "torch", "relax": "relax"}

EXERCISES = (
    Exercise(
        id="day02.visitor",
        title="A post-order visitor",
        section="In which order to walk",
        points={"did": 2, "spared": 1, "cost": 2},
        difficulty=2,
        minutes=25,
        stretch=True,
        hints=(
            "Post-order with an explicit stack: look at the node on top. If all of its operands are done, call its "
            "callback and pop it; if not, push the operands that are not done.",
            "One dictionary, from node to result, answers two questions: is this node done, and what did it return? A "
            "node without a callback counts as done too, with the result None.",
            "stack = [root]; while stack: node = stack[-1]; todo = [o for o in node.all_input_nodes if o not in "
            "results]; if todo: stack.extend(todo), else: stack.pop() and, if node is not in results yet, call its "
            "callback.",
        ),
        helps={"did": 1, "cost": 1},
    ),
    Exercise(
        id="day02.fuse-conv-relu",
        title="Fuse conv2d and relu",
        section="The multi-consumer problem",
        points=PASS_POINTS,
        difficulty=3,
        minutes=45,
        hints=(
            "Walk over list(gm.graph.nodes) and look for ReLUs. For each one: what is its operand, is that a "
            "convolution, and how many users does the convolution have?",
            "ConvReLU2d takes the same arguments as nn.Conv2d, and conv has them all as attributes. Then share the "
            "parameters: fused.weight = conv.weight, and the same for the bias. Do not put the new module under the "
            "old one's name: another node may call the old one.",
            "gm.add_submodule(f'{node.name}_fused', fused), then with gm.graph.inserting_before(relu): new = "
            "gm.graph.call_module(that name, conv_node.args, conv_node.kwargs). For F.conv2d it is "
            "call_function(conv2d_relu, conv_node.args, conv_node.kwargs). Redirect the users "
            "(replace_all_uses_with), then erase the relu, then the conv.",
        ),
        helps={"valid": 3, "same": 2, "did": 1, "spared": 1, "cost": 3},
    ),
    Exercise(
        id="day02.fold-batchnorm",
        title="Fold batch norm into the convolution",
        section="Match, then rewrite",
        points=PASS_POINTS,
        difficulty=3,
        minutes=25,
        stretch=True,
        core=Core({"valid": 1, "same": 2, "did": 2}, difficulty=1, minutes=20),
        hints=(
            "In eval mode bn(y) = (y - mean) * scale + bias with scale = weight / sqrt(var + eps), one number for "
            "each channel. Substitute y = conv(x), and collect what multiplies x.",
            "New kernel: conv.weight * scale, with scale in the shape (channels, 1, 1, 1). New bias: (conv bias or 0 "
            "- mean) * scale + bn bias. Without affine parameters weight is 1 and bias is 0.",
            "Before that, five questions: is it exactly nn.Conv2d and exactly nn.BatchNorm2d? Is bn.training False? "
            "Does it keep running statistics? Does the convolution's value have only one user? Is the convolution's "
            "module called by only one node? Then copy.deepcopy(conv), give the copy new parameters, and add it under "
            "a new name.",
        ),
        closed=(
            "passlab.fx.rewrites.conv_bn_relu",
            "passlab.capstone.reference.fold_batchnorm",
            "passlab.fx.torch_passes.fuse",
            "passlab.quantization.graphs.functional",
            "torch.fx.experimental.optimization.fuse",
            "torch._inductor.fx_passes.pre_grad.fuse_conv_bn",
        ),
        helps={"valid": 2, "same": 3, "did": 1, "spared": 3},
    ),
    Exercise(
        id="day02.pass-manager",
        title="A pass manager that names the culprit",
        section="Passes in a row",
        points={"valid": 3, "did": 2, "spared": 2, "cost": 1},
        difficulty=3,
        minutes=20,
        stretch=True,
        core=Core({"valid": 3, "did": 2}, difficulty=1, minutes=20),
        hints=(
            "Write the loop without analyses first: verify the input, then for each pass run it, verify what it "
            "returned, and raise PassError with the name of the pass if the result is broken. Remember that None is a "
            "broken graph too.",
            "Keep a dictionary of facts that are still true. Before a pass, compute the facts it requires that are "
            "missing. After it, keep only the facts it preserves. Where must you create this dictionary so that a "
            "second run starts empty?",
            "Order first: seen = set(); for p in self.passes: if not set(p.after) <= seen, raise PassError(p.name, "
            "...). Facts: facts = {name: value for name, value in facts.items() if name in p.preserves}. Errors: "
            "except Exception as error: raise PassError(p.name, ...) from error.",
        ),
        meaning={
            "valid": "it verifies every graph and names the culprit",
            "spared": "every pass gets its facts, none of them stale",
        },
        helps={"valid": 1, "did": 1, "spared": 2, "cost": 2},
    ),
    Exercise(
        id="day02.equivalent",
        title="Are two programs the same function?",
        section="Is it still the same function?",
        points={"did": 4, "spared": 2},
        difficulty=3,
        minutes=30,
        stretch=True,
        core=Core({"did": 3, "spared": 2}, difficulty=1, minutes=20),
        hints=(
            "Write one function that runs a program: copy the inputs, set the seed, call, and return the outputs "
            "*and* the copied inputs as one flat list of tensors. Then compare two such lists.",
            "Compare in this order: number of tensors, shape, dtype, where NaN is, where infinity is, and only then "
            "the difference of the finite elements, in double. The tolerance is a small multiple of "
            "torch.finfo(dtype).eps times the magnitude of the values; integers and booleans must be equal.",
            "difference = (a.double() - b.double())[a.isfinite()]; tolerance = 100 * torch.finfo(a.dtype).eps * "
            "b[b.isfinite()].abs().max(). As inputs, use the example and, for its floating-point tensors, a few draws "
            "of torch.randn, scaled by 1 and by 100. If after raises, return (False, inf, inf).",
        ),
        meaning={
            "did": "it tells different programs apart",
            "spared": "it accepts programs that only round differently",
        },
        helps={"did": 2, "spared": 2},
    ),
    Exercise(
        id="day02.lost-attribute",
        title="Eight planted passes: which attribute got lost?",
        section="What a rewrite leaves stale",
        points={"did": 3, "spared": 1},
        difficulty=4,
        minutes=40,
        stretch=True,
        hints=(
            "First use your equivalent. Where it says the programs are the same, nothing was lost, however different "
            "the attributes look.",
            "Go through the convolutions of both programs side by side. An attribute that differs is a suspect, not "
            "yet the culprit: padding='same' and padding=1 may pad the same.",
            "To convict a suspect, change only this attribute in a copy of before and see whether that alone makes a "
            "difference: build nn.Conv2d(…) with all the old attributes except this one, and give it the old weights.",
        ),
        helps={"did": 2, "spared": 1},
        seconds=10.0,
    ),
    Exercise(
        id="day02.counterexample",
        title="Break six wrong passes",
        section="Why random inputs are not enough",
        points={"valid": 1, "did": 4, "cost": 1},
        difficulty=3,
        minutes=30,
        stretch=True,
        hints=(
            "Read the docstring of a pass as a claim about every graph, and look for what it does not check: who else "
            "uses the value? Which dimensions? Which dtype? Whose memory is it?",
            "fuse_add_relu: give the sum a second user. cancel_transposes: other dimensions. drop_round_trips: a "
            "number that half precision cannot represent. relu_in_place: a view of the input. relu_before_pool: which "
            "pool is not monotone in the way max is? merge_relus: which two functions called relu are different?",
            "Make a graph with fx.symbolic_trace(lambda x: …); the inputs are a tuple. The average of relu and the "
            "relu of an average differ as soon as one window holds both signs.",
        ),
        helps={"valid": 3, "did": 1},
    ),
    Exercise(
        id="day02.fuse-silu",
        notebook="relax",
        title="The same pass in Relax",
        section="The same pass elsewhere",
        points=PASS_POINTS,
        difficulty=3,
        minutes=35,
        seconds=2.0,
        stretch=True,
        hints=(
            "visit_call_ receives every call and returns its replacement. Begin with call = "
            "self.visit_expr_post_order(call), and return call for anything that does not match. Compare operators "
            "with ==: call.op == tvm.ir.Op.get('relax.multiply'); call.op may also be a function of the module.",
            "Operands are variables: self.lookup_binding(gate) gives the call that produced the value, or None for a "
            "parameter (use it only on a relax.Var; a constant has no binding). Try both orders, and compare with "
            "same_as: made.args[0].same_as(x).",
            "For every relax.Function f of module.functions, under its GlobalVar v: mutator.builder_.update_func(v, "
            "mutator.visit_expr(f)). Then mutator.builder_.get() is the new module; "
            "relax.transform.DeadCodeElimination()(…) removes the sigmoids that are now unused.",
        ),
        helps={"did": 2, "spared": 2, "cost": 3},
    ),
)
